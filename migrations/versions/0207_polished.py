"""polished candidates are counted

Revision ID: 0207
Revises: 0206
"""

import sqlalchemy as sa
from alembic import op

revision = "0207"
down_revision = "0206"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("polished", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("run_progress", "polished")
