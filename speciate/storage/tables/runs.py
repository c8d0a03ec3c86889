"""Runs with their progress, work units, events and claims."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.domain.run import RunCounters
from speciate.storage.tables.columns import NOW, Floats, Id, Ints, Time, created, hidden, metadata, project

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    sa.Column("problem_id", Id, sa.ForeignKey("problems.id"), nullable=False, index=True),
    sa.Column("policy_id", Id, sa.ForeignKey("policies.id"), nullable=False, index=True),
    sa.Column("mutator_id", Id, sa.ForeignKey("policies.id")),
    sa.Column("strategy", sa.Text, nullable=False),
    sa.Column("spec", pg.JSONB, nullable=False),
    # Runs from which it took seed programs, with what they had spent by then: fields of ``SourceRun``.
    sa.Column("sources", pg.JSONB, nullable=False, server_default="[]"),
    sa.Column("estimate", pg.JSONB),
    # False if a tournament or campaign started the run and counts towards the quotas in its place.
    sa.Column("own", sa.Boolean, nullable=False, server_default="true"),
    # Labels; only they and the visibility change.
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("tags", pg.ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    created(),
    *hidden(),
    sa.Index("ix_runs_project", "project_id", "id"),
    # Partial: most runs of tournaments and campaigns have no labels.
    sa.Index("ix_runs_tags", "tags", postgresql_using="gin", postgresql_where=sa.text("tags <> '{}'")),
    sa.Index("ix_runs_named", "project_id", "id", postgresql_where=sa.text("name <> ''")),
    # Partial: most runs are visible.
    sa.Index(
        "ix_runs_hidden",
        "project_id",
        "id",
        postgresql_where=sa.text("archived_at IS NOT NULL OR deleted_at IS NOT NULL"),
    ),
)

# Members of ensembles; runs with one policy per role have no rows.
run_policies = sa.Table(
    "run_policies",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("policy_id", Id, sa.ForeignKey("policies.id"), nullable=False, index=True),
    sa.Column("weight", pg.DOUBLE_PRECISION, nullable=False),
)

# Programs that a run evaluates first in place of the problem's seed program.
run_seeds = sa.Table(
    "run_seeds",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("origin", sa.Text),
)

# The mutable row of a run: small and without indexes on mutable columns, so that updates stay in the page.
progress = sa.Table(
    "run_progress",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("budget_evaluations", sa.BigInteger),
    sa.Column("budget_tokens", sa.BigInteger),
    sa.Column("budget_seconds", pg.DOUBLE_PRECISION),
    sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False, server_default="0"),
    sa.Column("running_since", Time),
    sa.Column("started_at", Time),
    sa.Column("finished_at", Time),
    sa.Column("evaluations", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_evaluations", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("numbers", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("batches", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("live", sa.Integer, nullable=False, server_default="0"),
    *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in RunCounters.model_fields),
    sa.Column("cost", pg.DOUBLE_PRECISION, nullable=False, server_default="0"),
    sa.Column("failures", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("reasons", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("best_number", sa.BigInteger),
    sa.Column("best", Floats, nullable=False, server_default="{}"),
    sa.Column("best_targets", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("claimed", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("confirmed", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("recent", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("granted", sa.BigInteger),
    sa.Column("improved_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("stopping", sa.Text),
    sa.Column("arms", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("advice", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("alarm", sa.Text),
    sa.Column("streaks", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("diagnosis", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("learning", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("trials", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("final", pg.JSONB, nullable=False, server_default="{}"),
    sa.Column("pruned_at", Time),
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    sa.CheckConstraint("evaluations + reserved_evaluations <= budget_evaluations", name="evaluations_in_budget"),
    sa.CheckConstraint("evaluations + reserved_evaluations <= granted", name="evaluations_granted"),
    sa.CheckConstraint("tokens + reserved_tokens <= budget_tokens", name="tokens_in_budget"),
    sa.CheckConstraint("reserved_evaluations >= 0 AND reserved_tokens >= 0 AND live >= 0", name="reservations"),
    # For queries that run every second, whose cost must not grow with ended runs.
    sa.Index(
        "ix_run_progress_unended", "run_id", postgresql_where=sa.text("state IN ('created', 'running', 'paused')")
    ),
    postgresql_with={"fillfactor": "50"},
)

work = sa.Table(
    "work",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("lane", sa.Integer, nullable=False),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_token", Id),
    sa.Column("lease_until", Time),
    sa.Column("dispatched_at", Time),
    sa.Column("resends", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reserved_evaluations", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("payload", pg.JSONB, nullable=False),
    sa.Column("reason", sa.Text),
    created(),
    # Partial: finished work is only in the primary key.
    sa.Index("ix_work_live", "run_id", "state", postgresql_where=sa.text("state IN ('ready', 'leased', 'parked')")),
    postgresql_with={"fillfactor": "70"},
)

# Evaluations that programs outside the service perform for parked units (ADR 38). The result replaces the program.
external_evaluations = sa.Table(
    "external_evaluations",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("work_id", Id, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("program_hash", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("capabilities", pg.ARRAY(sa.Text), nullable=False),
    sa.Column("measured", pg.JSONB),
    sa.Column("result", pg.JSONB),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_token", Id),
    sa.Column("lease_until", Time),
    sa.Column("holder", sa.Text),
    created(),
    sa.UniqueConstraint("work_id", "program_hash", "seed"),
    sa.Index("ix_external_evaluations_open", "id", postgresql_where=sa.text("state IN ('ready', 'leased')")),
    postgresql_with={"fillfactor": "70"},
)

# Prompts that proposers outside the service received; the id is the token that ties an answer to its prompt (ADR 38).
asks = sa.Table(
    "asks",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("island", sa.Integer, nullable=False),
    sa.Column("parents", Ints, nullable=False),
    sa.Column("inspirations", Ints, nullable=False),
    sa.Column("system", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("advice", sa.BigInteger),
    created(),
)

# Answers to requests with proposals, by the resource of their idempotency key, and to answers to prompts, by prompt.
proposal_answers = sa.Table(
    "proposal_answers",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("answer", pg.JSONB, nullable=False),
    created(),
)

# Advice that a run wrote for its own prompts. The run's progress counts the gains of advice in use.
advice = sa.Table(
    "advice",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("rollout_id", Id),
    sa.Column("author", sa.Text),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("judged", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("won", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("dropped", sa.Boolean, nullable=False, server_default="false"),
    created(),
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("unlock", sa.Boolean, nullable=False),
    sa.Column("evaluations", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("at", Time, nullable=False, server_default=NOW, index=True),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", pg.JSONB, nullable=False),
    sa.Column("at", Time, nullable=False, server_default=NOW),
)

# One row: the time of the reconciler's last pass, which tells downtime from running time.
reconciler = sa.Table(
    "reconciler",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("alive_at", Time, nullable=False),
)
