"""access

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_DEFAULT = "00000000-0000-0000-0000-000000000000"
_VERSIONED = ("problems", "policies")
_NAMED = ("problem_sets", "tournaments", "campaigns")


def _id() -> postgresql.UUID:
    return postgresql.UUID(as_uuid=True)


def _time(name: str, **options: object) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), **options)


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False, server_default=""),
        sa.Column("concurrent_runs", sa.BigInteger()),
        sa.Column("evaluations_per_day", sa.BigInteger()),
        sa.Column("tokens_per_day", sa.BigInteger()),
        _time("created_at", nullable=False, server_default=sa.text("now()")),
        sa.UniqueConstraint("slug", name="uq_projects_slug"),
    )
    op.execute(f"INSERT INTO projects (id, slug) VALUES ('{_DEFAULT}', 'default')")  # noqa: S608 - a constant
    op.create_table(
        "tokens",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("project_id", _id(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        _time("created_at", nullable=False, server_default=sa.text("now()")),
        _time("expires_at"),
        _time("last_used_at"),
        _time("revoked_at"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_index("ix_tokens_project_id", "tokens", ["project_id"])
    op.create_table(
        "sessions",
        sa.Column("hash", sa.LargeBinary(), primary_key=True),
        sa.Column("token_id", _id(), sa.ForeignKey("tokens.id")),
        sa.Column("proof", sa.LargeBinary()),
        _time("created_at", nullable=False, server_default=sa.text("now()")),
        _time("expires_at", nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", _id(), primary_key=True),
        _time("at", nullable=False, server_default=sa.text("now()")),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("token_id", _id()),
        sa.Column("project_id", _id()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
    )
    op.create_index("ix_audit_project", "audit", ["project_id", "id"])
    op.execute(
        "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
        " FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
    )
    # A constant default costs no rewriting, and whoever knows of no projects goes on storing into it.
    for table in (*_VERSIONED, *_NAMED, "runs"):
        op.add_column(
            table,
            sa.Column(
                "project_id",
                _id(),
                sa.ForeignKey("projects.id"),
                nullable=False,
                server_default=sa.text(f"'{_DEFAULT}'"),
            ),
        )
    for table in _VERSIONED:
        for column in ("version", "digest"):
            op.create_unique_constraint(f"uq_{table}_project_id_slug_{column}", table, ["project_id", "slug", column])
            op.drop_constraint(f"uq_{table}_slug_{column}", table)
    for table in _NAMED:
        op.create_unique_constraint(f"uq_{table}_project_id_slug", table, ["project_id", "slug"])
        op.drop_constraint(f"uq_{table}_slug", table)
    op.add_column("runs", sa.Column("own", sa.Boolean(), nullable=False, server_default="true"))
    op.create_index("ix_runs_project", "runs", ["project_id", "id"])


def downgrade() -> None:
    # Where two projects have the same name this fails, and everything stays as it is.
    op.drop_index("ix_runs_project", "runs")
    op.drop_column("runs", "own")
    for table in _NAMED:
        op.create_unique_constraint(f"uq_{table}_slug", table, ["slug"])
    for table in _VERSIONED:
        for column in ("version", "digest"):
            op.create_unique_constraint(f"uq_{table}_slug_{column}", table, ["slug", column])
    for table in (*_VERSIONED, *_NAMED, "runs"):
        op.drop_column(table, "project_id")
    op.drop_table("audit")
    op.execute("DROP FUNCTION audit_is_append_only()")
    for table in ("sessions", "tokens", "projects"):
        op.drop_table(table)
