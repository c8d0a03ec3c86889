"""campaigns

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_GRANTED = "ck_run_progress_evaluations_granted"


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("granted", sa.BigInteger(), nullable=True))
    op.create_check_constraint(op.f(_GRANTED), "run_progress", "evaluations + reserved_evaluations <= granted")
    op.create_table(
        "campaigns",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("declaration", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("slug", name=op.f("uq_campaigns_slug")),
    )
    op.create_table(
        "campaign_runs",
        sa.Column("campaign_id", sa.UUID(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=True),
        sa.ForeignKeyConstraint(
            ["campaign_id"], ["campaigns.id"], name=op.f("fk_campaign_runs_campaign_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_campaign_runs_run_id")),
        sa.PrimaryKeyConstraint("campaign_id", "position", name=op.f("pk_campaign_runs")),
    )
    op.create_table(
        "campaign_slices",
        sa.Column("campaign_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("evaluations", sa.BigInteger(), nullable=False),
        sa.Column("gap", sa.BigInteger(), nullable=False),
        sa.Column("chance", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=True),
        sa.Column("gap_after", sa.BigInteger(), nullable=True),
        sa.Column("reached", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("closed", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["campaign_id"], ["campaigns.id"], name=op.f("fk_campaign_slices_campaign_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("campaign_id", "ord", name=op.f("pk_campaign_slices")),
    )


def downgrade() -> None:
    op.drop_table("campaign_slices")
    op.drop_table("campaign_runs")
    op.drop_table("campaigns")
    op.drop_constraint(op.f(_GRANTED), "run_progress", type_="check")
    op.drop_column("run_progress", "granted")
