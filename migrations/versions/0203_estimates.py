"""runs keep what was estimated before they started

Revision ID: 0203
Revises: 0202
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0203"
down_revision = "0202"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("estimate", pg.JSONB))


def downgrade() -> None:
    op.drop_column("runs", "estimate")
