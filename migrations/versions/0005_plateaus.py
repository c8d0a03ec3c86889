"""when the archive last improved

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("improved_at", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("run_progress", sa.Column("stopping", sa.Text(), nullable=True))
    # Whoever took the last place that was taken still holds it.
    op.execute(
        "UPDATE run_progress p SET improved_at = coalesce((SELECT max(c.spent_evaluations) FROM elites e"
        " JOIN candidates c ON c.run_id = e.run_id AND c.number = e.number WHERE e.run_id = p.run_id), 0)"
    )


def downgrade() -> None:
    op.drop_column("run_progress", "stopping")
    op.drop_column("run_progress", "improved_at")
