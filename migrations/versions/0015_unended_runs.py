"""an index of the runs that have not ended

Not built concurrently: that waits for every open transaction, that of another process that waits to migrate among them.
Bookings wait for one scan of the table, a second or so for a million runs.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_run_progress_unended",
        "run_progress",
        ["run_id"],
        postgresql_where=sa.text("state IN ('created', 'running', 'paused')"),
    )


def downgrade() -> None:
    op.drop_index("ix_run_progress_unended", table_name="run_progress")
