"""candidates of noisy problems have several evaluations, and runs a final value

Revision ID: 0204
Revises: 0203
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0204"
down_revision = "0203"
branch_labels = None
depends_on = None


def upgrade() -> None:
    floats = pg.ARRAY(pg.DOUBLE_PRECISION)
    op.add_column("candidates", sa.Column("trial", sa.Integer))
    op.add_column("candidates", sa.Column("first", floats))
    op.add_column("candidates", sa.Column("error", floats))
    op.add_column("candidates", sa.Column("evaluations", sa.Integer))
    op.add_column("elites", sa.Column("error", floats))
    op.add_column("elites", sa.Column("evaluations", sa.Integer))
    op.add_column("run_progress", sa.Column("trials", pg.JSONB, nullable=False, server_default="{}"))
    op.add_column("run_progress", sa.Column("final", pg.JSONB, nullable=False, server_default="{}"))


def downgrade() -> None:
    for table, names in {
        "run_progress": ("final", "trials"),
        "elites": ("evaluations", "error"),
        "candidates": ("evaluations", "error", "first", "trial"),
    }.items():
        for name in names:
            op.drop_column(table, name)
