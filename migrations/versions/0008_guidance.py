"""advice that a run writes for its own prompts

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "advice",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("parent", sa.BigInteger(), nullable=False),
        sa.Column("rollout_id", sa.UUID(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("judged", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("won", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("dropped", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_advice_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_advice")),
    )
    op.add_column("rollouts", sa.Column("advice", sa.BigInteger(), nullable=True))
    op.add_column(
        "run_progress",
        sa.Column("advice", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("run_progress", "advice")
    op.drop_column("rollouts", "advice")
    op.drop_table("advice")
