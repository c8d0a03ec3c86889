"""results that other runs may use

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "results",
        sa.Column("evaluator_digest", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("program_hash", sa.Text(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_results_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("evaluator_digest", "tier", "program_hash", name=op.f("pk_results")),
    )
    op.create_index(op.f("ix_results_run_id"), "results", ["run_id"], unique=False)
    op.add_column("candidates", sa.Column("reused_from", sa.Text(), nullable=True))
    op.add_column("run_progress", sa.Column("reused", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("run_progress", "reused")
    op.drop_column("candidates", "reused_from")
    op.drop_index(op.f("ix_results_run_id"), table_name="results")
    op.drop_table("results")
