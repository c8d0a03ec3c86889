"""Declare the database tables. Ids are UUIDv7; vectors are ``float8[]`` in the problem's declared order."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.domain.run import RunCounters

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = pg.UUID(as_uuid=True)
_Time = sa.DateTime(timezone=True)
_Floats = pg.ARRAY(pg.DOUBLE_PRECISION)
_Ints = pg.ARRAY(sa.BigInteger)
_NOW = sa.text("now()")

DEFAULT_PROJECT_ID: Final = UUID(int=0)
"""Project of rows stored without one."""


def _created() -> sa.Column[object]:
    return sa.Column("created_at", _Time, nullable=False, server_default=_NOW)


def _hidden() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("archived_at", _Time), sa.Column("deleted_at", _Time)


def _project() -> sa.Column[object]:
    default = sa.text(f"'{DEFAULT_PROJECT_ID}'")
    return sa.Column("project_id", _Id, sa.ForeignKey("projects.id"), nullable=False, server_default=default)


# A quota that is NULL is unlimited.
projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("slug", sa.Text, nullable=False, unique=True),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Column("concurrent_runs", sa.BigInteger),
    sa.Column("evaluations_per_day", sa.BigInteger),
    sa.Column("tokens_per_day", sa.BigInteger),
    _created(),
)

# Only the hash of a token is stored, and its first characters for display.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("project_id", _Id, sa.ForeignKey("projects.id"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    _created(),
    sa.Column("expires_at", _Time),
    sa.Column("last_used_at", _Time),
    sa.Column("revoked_at", _Time),
)

# Dashboard sessions. Those of the operator have no token; their proof binds them to SPECIATE_TOKEN.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sa.Column("token_id", _Id, sa.ForeignKey("tokens.id")),
    sa.Column("proof", sa.LargeBinary),
    _created(),
    sa.Column("expires_at", _Time, nullable=False),
)

# Requests with principal and result. A trigger refuses to change or delete rows.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("at", _Time, nullable=False, server_default=_NOW),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("token_id", _Id),
    sa.Column("project_id", _Id),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("object", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Index("ix_audit_project", "project_id", "id"),
)

problems = sa.Table(
    "problems",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("evaluator_digest", sa.Text, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    _created(),
    *_hidden(),
    sa.UniqueConstraint("project_id", "slug", "version"),
    sa.UniqueConstraint("project_id", "slug", "digest"),
)

problem_sets = sa.Table(
    "problem_sets",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    _created(),
    sa.UniqueConstraint("project_id", "slug"),
)

problem_set_members = sa.Table(
    "problem_set_members",
    metadata,
    sa.Column("set_id", _Id, sa.ForeignKey("problem_sets.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("problem_id", _Id, sa.ForeignKey("problems.id"), nullable=False),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    _created(),
    *_hidden(),
    sa.UniqueConstraint("project_id", "slug", "version"),
    sa.UniqueConstraint("project_id", "slug", "digest"),
)

# API keys of policy endpoints, sealed with SPECIATE_SECRET_KEY; policy definitions refer to the id.
policy_keys = sa.Table(
    "policy_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("sealed", sa.Text, nullable=False),
    _created(),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("problem_id", _Id, sa.ForeignKey("problems.id"), nullable=False, index=True),
    sa.Column("policy_id", _Id, sa.ForeignKey("policies.id"), nullable=False, index=True),
    sa.Column("mutator_id", _Id, sa.ForeignKey("policies.id")),
    sa.Column("strategy", sa.Text, nullable=False),
    sa.Column("spec", pg.JSONB, nullable=False),
    # Runs from which it took seed programs, with what they had spent by then: fields of ``SourceRun``.
    sa.Column("sources", pg.JSONB, nullable=False, server_default="[]"),
    # False if a tournament or campaign started the run and counts towards the quotas in its place.
    sa.Column("own", sa.Boolean, nullable=False, server_default="true"),
    # Labels; only they and the visibility change.
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("tags", pg.ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    _created(),
    *_hidden(),
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
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("policy_id", _Id, sa.ForeignKey("policies.id"), nullable=False, index=True),
    sa.Column("weight", pg.DOUBLE_PRECISION, nullable=False),
)

# Programs that a run evaluates first in place of the problem's seed program.
run_seeds = sa.Table(
    "run_seeds",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("origin", sa.Text),
)

# The mutable row of a run: small and without indexes on mutable columns, so that updates stay in the page.
progress = sa.Table(
    "run_progress",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("budget_evaluations", sa.BigInteger),
    sa.Column("budget_tokens", sa.BigInteger),
    sa.Column("budget_seconds", pg.DOUBLE_PRECISION),
    sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False, server_default="0"),
    sa.Column("running_since", _Time),
    sa.Column("started_at", _Time),
    sa.Column("finished_at", _Time),
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
    sa.Column("best", _Floats, nullable=False, server_default="{}"),
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
    sa.Column("pruned_at", _Time),
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
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("lane", sa.Integer, nullable=False),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_token", _Id),
    sa.Column("lease_until", _Time),
    sa.Column("dispatched_at", _Time),
    sa.Column("resends", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reserved_evaluations", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("payload", pg.JSONB, nullable=False),
    sa.Column("reason", sa.Text),
    _created(),
    # Partial: finished work is only in the primary key.
    sa.Index("ix_work_live", "run_id", "state", postgresql_where=sa.text("state IN ('ready', 'leased', 'parked')")),
    postgresql_with={"fillfactor": "70"},
)

# Evaluations that programs outside the service perform for parked units (ADR 38). The result replaces the program.
external_evaluations = sa.Table(
    "external_evaluations",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("work_id", _Id, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("program_hash", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("capabilities", pg.ARRAY(sa.Text), nullable=False),
    sa.Column("measured", pg.JSONB),
    sa.Column("result", pg.JSONB),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_token", _Id),
    sa.Column("lease_until", _Time),
    sa.Column("holder", sa.Text),
    _created(),
    sa.UniqueConstraint("work_id", "program_hash", "seed"),
    sa.Index("ix_external_evaluations_open", "id", postgresql_where=sa.text("state IN ('ready', 'leased')")),
    postgresql_with={"fillfactor": "70"},
)

prompts = sa.Table(
    "prompts",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("system", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
)

rollouts = sa.Table(
    "rollouts",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("work_id", _Id, nullable=False),
    sa.Column("ord", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("policy_id", _Id, sa.ForeignKey("policies.id"), nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("prompt_digest", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("completion", sa.Text, nullable=False),
    sa.Column("prompt_tokens", sa.Integer, nullable=False),
    sa.Column("completion_tokens", sa.Integer, nullable=False),
    sa.Column("latency_s", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("finish_reason", sa.Text, nullable=False),
    sa.Column("mean_logprob", pg.DOUBLE_PRECISION),
    sa.Column("logprobs", pg.ARRAY(sa.REAL)),
    sa.Column("token_ids", pg.ARRAY(sa.Integer)),
    sa.Column("reasoning_tokens", sa.Integer, nullable=False, server_default="0"),
    sa.Column("answers", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("advice", sa.BigInteger),
    sa.Column("author", sa.Text),
    sa.Column("model", sa.Text),
    _created(),
    sa.UniqueConstraint("work_id", "ord"),
    sa.Index("ix_rollouts_run", "run_id", "batch", "ord"),
)

# Prompts that proposers outside the service received; the id is the token that ties an answer to its prompt (ADR 38).
asks = sa.Table(
    "asks",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("island", sa.Integer, nullable=False),
    sa.Column("parents", _Ints, nullable=False),
    sa.Column("inspirations", _Ints, nullable=False),
    sa.Column("system", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("advice", sa.BigInteger),
    _created(),
)

# Answers to requests with proposals, by the resource of their idempotency key.
proposal_answers = sa.Table(
    "proposal_answers",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("answer", pg.JSONB, nullable=False),
    _created(),
)

# Advice that a run wrote for its own prompts. The run's progress counts the gains of advice in use.
advice = sa.Table(
    "advice",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("rollout_id", _Id),
    sa.Column("author", sa.Text),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("judged", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("won", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("dropped", sa.Boolean, nullable=False, server_default="false"),
    _created(),
)

candidates = sa.Table(
    "candidates",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("work_id", _Id, nullable=False),
    sa.Column("ord", sa.Integer, nullable=False),
    sa.Column("rollout_id", _Id),
    sa.Column("policy_id", _Id),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("island", sa.Integer, nullable=False),
    sa.Column("parents", _Ints, nullable=False),
    sa.Column("inspirations", _Ints, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("program_hash", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("failure", sa.Text),
    sa.Column("failure_reason", sa.Text),
    sa.Column("failure_detail", sa.Text),
    sa.Column("rewards", _Floats),
    sa.Column("scalar", pg.DOUBLE_PRECISION),
    sa.Column("targets", sa.BigInteger, nullable=False),
    sa.Column("refuted", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("repeats", pg.JSONB),
    sa.Column("spent_evaluations", sa.BigInteger, nullable=False),
    sa.Column("spent_tokens", sa.BigInteger, nullable=False),
    sa.Column("spent_seconds", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("duplicate_of", sa.BigInteger),
    sa.Column("tier", sa.Text, nullable=False),
    sa.Column("wall_s", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("cpu_s", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("artifacts", pg.JSONB, nullable=False),
    sa.Column("stopped_at", sa.Text),
    sa.Column("shape", sa.Text),
    sa.Column("reused_from", sa.Text),
    sa.Column("attested_by", sa.Text),
    sa.Column("environment", sa.Text),
    sa.Column("carried_from", sa.BigInteger),
    sa.Column("origin", sa.Text),
    _created(),
    sa.UniqueConstraint("work_id", "ord"),
    sa.UniqueConstraint("run_id", "number"),
    sa.Index("ix_candidates_twin", "run_id", "program_hash", postgresql_where=sa.text("duplicate_of IS NULL")),
    sa.Index("ix_candidates_shape", "run_id", "shape", postgresql_where=sa.text("shape IS NOT NULL")),
    sa.Index("ix_candidates_target", "run_id", "spent_evaluations", postgresql_where=sa.text("targets <> 0")),
)

# Candidates whose results other runs may reuse: keys only, deleted with the run.
results = sa.Table(
    "results",
    metadata,
    sa.Column("evaluator_digest", sa.Text, primary_key=True),
    sa.Column("tier", sa.Text, primary_key=True),
    sa.Column("program_hash", sa.Text, primary_key=True),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)

elites = sa.Table(
    "elites",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("island", sa.Integer, primary_key=True),
    sa.Column("cell", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("fitness", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("rewards", _Floats, nullable=False),
    postgresql_with={"fillfactor": "70"},
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("unlock", sa.Boolean, nullable=False),
    sa.Column("evaluations", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("at", _Time, nullable=False, server_default=_NOW, index=True),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", pg.JSONB, nullable=False),
    sa.Column("at", _Time, nullable=False, server_default=_NOW),
)

# Receivers of a project's events. The secret that signs deliveries is sealed with SPECIATE_SECRET_KEY.
webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("project_id", _Id, sa.ForeignKey("projects.id"), nullable=False, index=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("events", pg.ARRAY(sa.Text), nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("sealed", sa.Text, nullable=False),
    _created(),
)

# One row per event and webhook, written in the transaction of the event; ``data`` never changes.
webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("webhook_id", _Id, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("data", pg.JSONB, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="pending"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    _created(),
    sa.Column("due_at", _Time, nullable=False, server_default=_NOW),
    sa.Column("lease_until", _Time),
    sa.Column("ended_at", _Time),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
    sa.Index("ix_webhook_deliveries_webhook_id", "webhook_id", "id"),
    sa.Index("ix_webhook_deliveries_due", "webhook_id", "due_at", postgresql_where=sa.text("state = 'pending'")),
)

# One row: the time of the reconciler's last pass, which tells downtime from running time.
reconciler = sa.Table(
    "reconciler",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("alive_at", _Time, nullable=False),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.Text, nullable=False),
    sa.Column("resource_id", _Id, nullable=False),
    _created(),
)

tournaments = sa.Table(
    "tournaments",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("declaration", pg.JSONB, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    _created(),
    sa.Column("finished_at", _Time),
    sa.UniqueConstraint("project_id", "slug"),
)

tournament_amendments = sa.Table(
    "tournament_amendments",
    metadata,
    sa.Column("tournament_id", _Id, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("extension", pg.JSONB, nullable=False),
    sa.Column("ended_runs", sa.Integer, nullable=False),
    _created(),
)

# The plan of a tournament: one row per run, in starting order.
tournament_runs = sa.Table(
    "tournament_runs",
    metadata,
    sa.Column("tournament_id", _Id, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("entrant", sa.Text, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id")),
    sa.Column("ended", sa.Boolean, nullable=False, server_default="false"),
    # Summary of the ended run, and the tournament's revision at that time.
    sa.Column("revision", sa.BigInteger),
    sa.Column("state", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("numbers", _Floats),
    sa.UniqueConstraint("tournament_id", "entrant", "problem", "seed"),
    # For reports, which read the summaries since a revision.
    sa.Index("ix_tournament_runs_revision", "tournament_id", "revision"),
    # For the controller, which looks at open runs every second.
    sa.Index("ix_tournament_runs_open", "tournament_id", "ord", postgresql_where=sa.text("NOT ended")),
)

campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _project(),
    sa.Column("slug", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("declaration", pg.JSON, nullable=False),  # JSON keeps the order of an ensemble
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    _created(),
    sa.Column("finished_at", _Time),
    sa.UniqueConstraint("project_id", "slug"),
)

# Problems of a campaign, each with the run that its first slice started. ``learner`` marks the run that has the shared
# learner: at most one.
campaign_runs = sa.Table(
    "campaign_runs",
    metadata,
    sa.Column("campaign_id", _Id, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("run_id", _Id, sa.ForeignKey("runs.id")),
    sa.Column("learner", sa.Boolean, nullable=False, server_default="false"),
)

# Slices of a campaign in the order of the decisions, with the state before and the result.
campaign_slices = sa.Table(
    "campaign_slices",
    metadata,
    sa.Column("campaign_id", _Id, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("evaluations", sa.BigInteger, nullable=False),
    sa.Column("gap", sa.BigInteger, nullable=False),
    sa.Column("chance", pg.DOUBLE_PRECISION, nullable=False),
    _created(),
    sa.Column("spent", sa.BigInteger),
    sa.Column("gap_after", sa.BigInteger),
    sa.Column("reached", pg.ARRAY(sa.Text)),
    sa.Column("closed", sa.Text),
)
