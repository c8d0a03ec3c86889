"""archived and deleted runs, problems and policies

Revision ID: 0113
Revises: 0111
"""

import sqlalchemy as sa
from alembic import op

revision = "0113"
down_revision = "0111"
branch_labels = None
depends_on = None

_TABLES = ("runs", "problems", "policies")


def upgrade() -> None:
    for table in _TABLES:
        for column in ("archived_at", "deleted_at"):
            op.add_column(table, sa.Column(column, sa.DateTime(timezone=True)))
    op.create_index(
        "ix_runs_hidden",
        "runs",
        ["project_id", "id"],
        postgresql_where=sa.text("archived_at IS NOT NULL OR deleted_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_runs_hidden", "runs")
    for table in _TABLES:
        for column in ("archived_at", "deleted_at"):
            op.drop_column(table, column)
