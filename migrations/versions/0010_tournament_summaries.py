"""tournament summaries

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tournaments", sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("tournament_runs", sa.Column("revision", sa.BigInteger(), nullable=True))
    op.add_column("tournament_runs", sa.Column("state", sa.Text(), nullable=True))
    op.add_column("tournament_runs", sa.Column("reason", sa.Text(), nullable=True))
    op.add_column("tournament_runs", sa.Column("numbers", postgresql.ARRAY(sa.DOUBLE_PRECISION()), nullable=True))
    op.create_index("ix_tournament_runs_revision", "tournament_runs", ["tournament_id", "revision"])
    # Runs that ended before have no numbers yet: control finds them again and writes them down.
    op.execute("UPDATE tournament_runs SET ended = false WHERE run_id IS NOT NULL")


def downgrade() -> None:
    op.drop_index("ix_tournament_runs_revision", "tournament_runs")
    op.drop_column("tournament_runs", "numbers")
    op.drop_column("tournament_runs", "reason")
    op.drop_column("tournament_runs", "state")
    op.drop_column("tournament_runs", "revision")
    op.drop_column("tournaments", "revision")
