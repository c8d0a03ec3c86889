"""tournaments

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tournaments",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("declaration", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tournaments")),
        sa.UniqueConstraint("slug", name=op.f("uq_tournaments_slug")),
    )
    op.create_table(
        "tournament_amendments",
        sa.Column("tournament_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("extension", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("ended_runs", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tournament_id"],
            ["tournaments.id"],
            name=op.f("fk_tournament_amendments_tournament_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tournament_id", "ord", name=op.f("pk_tournament_amendments")),
    )
    op.create_table(
        "tournament_runs",
        sa.Column("tournament_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("entrant", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=True),
        sa.Column("ended", sa.Boolean(), server_default="false", nullable=False),
        sa.ForeignKeyConstraint(
            ["tournament_id"], ["tournaments.id"], name=op.f("fk_tournament_runs_tournament_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tournament_runs_run_id")),
        sa.PrimaryKeyConstraint("tournament_id", "ord", name=op.f("pk_tournament_runs")),
        sa.UniqueConstraint(
            "tournament_id",
            "entrant",
            "problem",
            "seed",
            name=op.f("uq_tournament_runs_tournament_id_entrant_problem_seed"),
        ),
    )
    op.create_index(
        "ix_tournament_runs_open",
        "tournament_runs",
        ["tournament_id", "ord"],
        postgresql_where=sa.text("NOT ended"),
    )


def downgrade() -> None:
    op.drop_table("tournament_runs")
    op.drop_table("tournament_amendments")
    op.drop_table("tournaments")
