"""lanes that a run has opened

Revision ID: 0210
Revises: 0209
"""

import sqlalchemy as sa
from alembic import op

revision = "0210"
down_revision = "0209"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_progress", sa.Column("lanes", sa.Integer, server_default="0", nullable=False))
    # Runs in progress keep those that they have.
    op.execute("UPDATE run_progress SET lanes = 1024 WHERE live > 0")


def downgrade() -> None:
    op.drop_column("run_progress", "lanes")
