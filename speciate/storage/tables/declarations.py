"""Tournaments and campaigns."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Time, created, named_table, required

tournaments = named_table(
    "tournaments",
    *required(sa.Text, "digest state"),
    sa.Column("declaration", pg.JSONB, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    created(),
    sa.Column("finished_at", Time),
)

campaigns = named_table(
    "campaigns",
    *required(sa.Text, "digest state"),
    sa.Column("declaration", pg.JSON, nullable=False),  # JSON keeps the order of an ensemble
    sa.Column("reason", sa.Text),
    created(),
    sa.Column("finished_at", Time),
)
