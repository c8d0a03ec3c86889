"""diagnosis: why the service paused a run

Revision ID: 0111
Revises: 0104
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0111"
down_revision = "0104"
branch_labels = None
depends_on = None

_COLUMNS = ("streaks", "diagnosis")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("run_progress", sa.Column(name, pg.JSONB, nullable=False, server_default="{}"))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("run_progress", name)
