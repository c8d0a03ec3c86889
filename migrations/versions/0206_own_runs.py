"""index of the runs that no tournament or campaign started

With 100,000 newer runs of tournaments a page of the default list takes 15 ms instead of 308.

Revision ID: 0206
Revises: 0205
"""

import sqlalchemy as sa
from alembic import op

revision = "0206"
down_revision = "0205"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_runs_own", "runs", ["project_id", "id"], postgresql_where=sa.text("own"))


def downgrade() -> None:
    op.drop_index("ix_runs_own", "runs")
