"""Projects, tokens, sessions and idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa

from speciate.storage.tables.columns import Id, Time, created, metadata

# A quota that is NULL is unlimited.
projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Column("concurrent_runs", sa.BigInteger),
    sa.Column("evaluations_per_day", sa.BigInteger),
    sa.Column("tokens_per_day", sa.BigInteger),
    created(),
)

# Only the hash of a token is stored, and its first characters for display.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    created(),
    sa.Column("expires_at", Time),
    sa.Column("last_used_at", Time),
    sa.Column("revoked_at", Time),
)

# Dashboard sessions. Those of the operator have no token; their proof binds them to SPECIATE_TOKEN.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sa.Column("token_id", Id, sa.ForeignKey("tokens.id")),
    sa.Column("proof", sa.LargeBinary),
    created(),
    sa.Column("expires_at", Time, nullable=False),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.Text, nullable=False),
    sa.Column("resource_id", Id, nullable=False),
    created(),
)
