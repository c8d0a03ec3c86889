"""tokens that endpoints did not report are counted

Revision ID: 0202
Revises: 0201
"""

import sqlalchemy as sa
from alembic import op

revision = "0202"
down_revision = "0201"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("estimated_tokens", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("run_progress", "estimated_tokens")
