"""Projects, tokens, sessions and idempotency keys."""

import sqlalchemy as sa

from speciate.storage.tables.columns import Id, Time, created, optional, required, table

# A quota that is NULL is unlimited.
projects = table(
    "projects",
    sa.Column("id", Id, primary_key=True),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    *optional(sa.BigInteger, "concurrent_runs evaluations_per_day tokens_per_day"),
    created(),
)

# Only the hash of a token is stored, and its first characters for display.
tokens = table(
    "tokens",
    sa.Column("id", Id, primary_key=True),
    sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False),
    *required(sa.Text, "name prefix scope created_by"),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    created(),
    *optional(Time, "expires_at last_used_at revoked_at"),
)

# Dashboard sessions. Those of the operator have no token; their proof binds them to SPECIATE_TOKEN.
sessions = table(
    "sessions",
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sa.Column("token_id", Id, sa.ForeignKey("tokens.id")),
    sa.Column("proof", sa.LargeBinary),
    created(),
    sa.Column("expires_at", Time, nullable=False),
)

idempotency_keys = table(
    "idempotency_keys",
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.Text, nullable=False),
    sa.Column("resource_id", Id, nullable=False),
    created(),
)
