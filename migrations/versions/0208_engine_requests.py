"""requests of engines in flight, with the ordinals of their batches

Revision ID: 0208
Revises: 0207
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0208"
down_revision = "0207"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("engine_sessions", sa.Column("requests", pg.JSONB, nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("engine_sessions", "requests")
