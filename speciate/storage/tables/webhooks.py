"""Webhooks and their deliveries."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import NOW, Id, Time, created, optional, required, table

# Receivers of a project's events. The secret that signs deliveries is sealed with SPECIATE_SECRET_KEY.
webhooks = table(
    "webhooks",
    sa.Column("id", Id, primary_key=True),
    sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False),
    *required(sa.Text, "url description sealed"),
    sa.Column("events", pg.ARRAY(sa.Text), nullable=False),
    created(),
)

# One row per event and webhook, written in the transaction of the event; ``data`` never changes.
webhook_deliveries = table(
    "webhook_deliveries",
    sa.Column("id", Id, primary_key=True),
    sa.Column("webhook_id", Id, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("data", pg.JSONB, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="pending"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    created(),
    sa.Column("due_at", Time, nullable=False, server_default=NOW),
    *optional(Time, "lease_until ended_at"),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
)
