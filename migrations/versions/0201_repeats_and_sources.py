"""Keep what the repeated evaluations of a candidate measured, and the effort of the runs that a run starts from."""

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
    op.add_column("runs", sa.Column("sources", pg.JSONB, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("runs", "sources")
    op.drop_column("candidates", "repeats")
