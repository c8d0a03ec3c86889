"""names, tags and notes of runs

Columns with constant defaults are added without writing a row, and both indexes are of labelled runs alone, of which
there are none yet: one scan of the table each. Processes of an earlier version go on; what they store has no labels.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("name", sa.Text(), server_default="", nullable=False))
    op.add_column("runs", sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False))
    op.add_column("runs", sa.Column("note", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_runs_tags", "runs", ["tags"], postgresql_using="gin", postgresql_where=sa.text("tags <> '{}'"))
    op.create_index("ix_runs_named", "runs", ["project_id", "id"], postgresql_where=sa.text("name <> ''"))


def downgrade() -> None:
    op.drop_index("ix_runs_named", table_name="runs")
    op.drop_index("ix_runs_tags", table_name="runs")
    for column in ("note", "tags", "name"):
        op.drop_column("runs", column)
