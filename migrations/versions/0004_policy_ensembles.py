"""several policies for a role

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_policies",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("policy_id", sa.UUID(), nullable=False),
        sa.Column("weight", sa.DOUBLE_PRECISION(), nullable=False),
        sa.ForeignKeyConstraint(["policy_id"], ["policies.id"], name=op.f("fk_run_policies_policy_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_policies_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "role", "ord", name=op.f("pk_run_policies")),
    )
    op.create_index(op.f("ix_run_policies_policy_id"), "run_policies", ["policy_id"], unique=False)
    op.add_column(
        "run_progress",
        sa.Column("arms", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("run_progress", "arms")
    op.drop_index(op.f("ix_run_policies_policy_id"), table_name="run_policies")
    op.drop_table("run_policies")
