"""the best candidate of a run instead of the best values

Revision ID: 0104
Revises: 0100
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0104"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("best_number", sa.BigInteger))
    op.add_column("run_progress", sa.Column("best_targets", sa.BigInteger, nullable=False, server_default="0"))
    # The values were of different candidates, so they belong to none.
    op.execute("UPDATE run_progress SET best = '{}'")
    op.drop_column("run_progress", "best_scalar")


def downgrade() -> None:
    op.add_column("run_progress", sa.Column("best_scalar", pg.DOUBLE_PRECISION))
    op.drop_column("run_progress", "best_targets")
    op.drop_column("run_progress", "best_number")
