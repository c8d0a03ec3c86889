"""what agents report that their answers cost

Revision ID: 0209
Revises: 0208
"""

import sqlalchemy as sa
from alembic import op

revision = "0209"
down_revision = "0208"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rollouts", sa.Column("cost", sa.Double))
    op.add_column("run_progress", sa.Column("dearest", sa.Double))


def downgrade() -> None:
    op.drop_column("run_progress", "dearest")
    op.drop_column("rollouts", "cost")
