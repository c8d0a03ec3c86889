"""Tournaments and campaigns."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Floats, Id, Time, created, metadata, project

tournaments = sa.Table(
    "tournaments",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("declaration", pg.JSONB, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    created(),
    sa.Column("finished_at", Time),
    sa.UniqueConstraint("project_id", "slug"),
)

tournament_amendments = sa.Table(
    "tournament_amendments",
    metadata,
    sa.Column("tournament_id", Id, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("extension", pg.JSONB, nullable=False),
    sa.Column("ended_runs", sa.Integer, nullable=False),
    created(),
)

# The plan of a tournament: one row per run, in starting order.
tournament_runs = sa.Table(
    "tournament_runs",
    metadata,
    sa.Column("tournament_id", Id, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("entrant", sa.Text, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id")),
    sa.Column("ended", sa.Boolean, nullable=False, server_default="false"),
    # Summary of the ended run, and the tournament's revision at that time.
    sa.Column("revision", sa.BigInteger),
    sa.Column("state", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("numbers", Floats),
    sa.UniqueConstraint("tournament_id", "entrant", "problem", "seed"),
    # For reports, which read the summaries since a revision.
    sa.Index("ix_tournament_runs_revision", "tournament_id", "revision"),
    # For the controller, which looks at open runs every second.
    sa.Index("ix_tournament_runs_open", "tournament_id", "ord", postgresql_where=sa.text("NOT ended")),
)

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("declaration", pg.JSON, nullable=False),  # JSON keeps the order of an ensemble
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    created(),
    sa.Column("finished_at", Time),
    sa.UniqueConstraint("project_id", "slug"),
)

# Problems of a campaign, each with the run that its first slice started. ``learner`` marks the run that has the shared
# learner: at most one.
campaign_runs = sa.Table(
    "campaign_runs",
    metadata,
    sa.Column("campaign_id", Id, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id")),
    sa.Column("learner", sa.Boolean, nullable=False, server_default="false"),
)

# Slices of a campaign in the order of the decisions, with the state before and the result.
campaign_slices = sa.Table(
    "campaign_slices",
    metadata,
    sa.Column("campaign_id", Id, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("evaluations", sa.BigInteger, nullable=False),
    sa.Column("gap", sa.BigInteger, nullable=False),
    sa.Column("chance", pg.DOUBLE_PRECISION, nullable=False),
    created(),
    sa.Column("spent", sa.BigInteger),
    sa.Column("gap_after", sa.BigInteger),
    sa.Column("reached", pg.ARRAY(sa.Text)),
    sa.Column("closed", sa.Text),
)
