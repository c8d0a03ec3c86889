"""old entries of the audit log may go, by retention alone

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF TG_OP = 'DELETE' AND current_setting('speciate.audit_retention', true) = 'on' THEN RETURN NULL; END IF;"
        " RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )


def downgrade() -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
