"""Keep what the repeated evaluations of a candidate measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0201"
down_revision = "0200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("candidates", sa.Column("repeats", pg.JSONB))


def downgrade() -> None:
    op.drop_column("candidates", "repeats")
