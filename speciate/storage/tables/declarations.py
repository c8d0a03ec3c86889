"""Tournaments and campaigns."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Id, Time, created, metadata, project, required

tournaments = sa.Table(
    "tournaments",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    *required(sa.Text, "slug digest state"),
    sa.Column("declaration", pg.JSONB, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    created(),
    sa.Column("finished_at", Time),
)

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    *required(sa.Text, "slug digest state"),
    sa.Column("declaration", pg.JSON, nullable=False),  # JSON keeps the order of an ensemble
    sa.Column("reason", sa.Text),
    created(),
    sa.Column("finished_at", Time),
)
