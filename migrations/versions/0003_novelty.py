"""which programs are the same

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("candidates", sa.Column("shape", sa.Text(), nullable=True))
    op.create_index(
        "ix_candidates_shape",
        "candidates",
        ["run_id", "shape"],
        unique=False,
        postgresql_where=sa.text("shape IS NOT NULL"),
    )
    # Runs that began before keep their rule, so that they go on and are replayed as they were.
    op.execute("""UPDATE runs SET spec = spec || '{"novelty": {"same": "text"}}'""")


def downgrade() -> None:
    op.execute("UPDATE runs SET spec = spec - 'novelty'")
    op.drop_index("ix_candidates_shape", table_name="candidates", postgresql_where=sa.text("shape IS NOT NULL"))
    op.drop_column("candidates", "shape")
