"""initial schema

Revision ID: 0210
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0210"
down_revision = None
branch_labels = None
depends_on = None

_DEFAULT_PROJECT = "00000000-0000-0000-0000-000000000000"
_NOW = sa.text("now()")
_TIME = sa.DateTime(timezone=True)
_UUID = pg.UUID(as_uuid=True)
_FLOATS = pg.ARRAY(sa.Double)
_INTS = pg.ARRAY(sa.BigInteger)


def _id() -> sa.Column:
    return sa.Column("id", _UUID, primary_key=True)


def _run(*, primary_key: bool = False) -> sa.Column:
    runs = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", _UUID, runs, primary_key=primary_key, nullable=False)


def _required(kind: object, names: str, default: str | None = None) -> list[sa.Column]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names.split()]


def _optional(kind: object, names: str) -> list[sa.Column]:
    return [sa.Column(name, kind) for name in names.split()]


def _created() -> sa.Column:
    return sa.Column("created_at", _TIME, nullable=False, server_default=_NOW)


def _project() -> sa.Column:
    default = sa.text(f"'{_DEFAULT_PROJECT}'")
    return sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False, server_default=default)


def _visibility() -> list[sa.Column]:
    return [sa.Column("archived_at", _TIME), sa.Column("deleted_at", _TIME)]


def _index(name: str, table: str, columns: str, *, where: str | None = None, using: str = "btree") -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, columns.split(), postgresql_where=condition, postgresql_using=using)


def upgrade() -> None:
    op.create_table(
        "audit",
        _id(),
        sa.Column("at", _TIME, nullable=False, server_default=_NOW),
        *_required(sa.Text, "principal action object address"),
        *_optional(_UUID, "token_id project_id"),
        sa.Column("status", sa.Integer, nullable=False),
    )
    _index("ix_audit_project", "audit", "project_id id")
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("request_digest", sa.Text, nullable=False),
        sa.Column("resource_id", _UUID, nullable=False),
        _created(),
    )
    op.create_table(
        "policy_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("sealed", sa.Text, nullable=False),
        _created(),
    )
    op.create_table(
        "projects",
        _id(),
        sa.Column("slug", sa.Text, nullable=False, unique=True),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        *_optional(sa.BigInteger, "concurrent_runs evaluations_per_day tokens_per_day"),
        _created(),
    )
    op.create_table("prompts", sa.Column("digest", sa.Text, primary_key=True), *_required(sa.Text, "system user"))
    op.create_table(
        "reconciler",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("alive_at", _TIME, nullable=False),
    )
    op.create_table(
        "campaigns",
        _id(),
        _project(),
        *_required(sa.Text, "slug digest state"),
        sa.Column("declaration", pg.JSON, nullable=False),
        sa.Column("reason", sa.Text),
        _created(),
        sa.Column("finished_at", _TIME),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "policies",
        _id(),
        _project(),
        *_required(sa.Text, "slug digest"),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("definition", pg.JSONB, nullable=False),
        _created(),
        *_visibility(),
        sa.UniqueConstraint("project_id", "slug", "digest"),
        sa.UniqueConstraint("project_id", "slug", "version"),
    )
    op.create_table(
        "problem_sets",
        _id(),
        _project(),
        *_required(sa.Text, "slug title"),
        _created(),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "problems",
        _id(),
        _project(),
        *_required(sa.Text, "slug digest evaluator_digest"),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("definition", pg.JSONB, nullable=False),
        _created(),
        *_visibility(),
        sa.UniqueConstraint("project_id", "slug", "digest"),
        sa.UniqueConstraint("project_id", "slug", "version"),
    )
    op.create_table(
        "tokens",
        _id(),
        sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False),
        *_required(sa.Text, "name prefix scope created_by"),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        _created(),
        *_optional(_TIME, "expires_at last_used_at revoked_at"),
    )
    _index("ix_tokens_project_id", "tokens", "project_id")
    op.create_table(
        "tournaments",
        _id(),
        _project(),
        *_required(sa.Text, "slug digest state"),
        sa.Column("declaration", pg.JSONB, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        _created(),
        sa.Column("finished_at", _TIME),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "webhooks",
        _id(),
        sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False),
        *_required(sa.Text, "url description sealed"),
        sa.Column("events", pg.ARRAY(sa.Text), nullable=False),
        _created(),
    )
    _index("ix_webhooks_project_id", "webhooks", "project_id")
    op.create_table(
        "campaign_slices",
        sa.Column("campaign_id", _UUID, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        *_required(sa.BigInteger, "first evaluations gap"),
        sa.Column("chance", sa.Double, nullable=False),
        _created(),
        *_optional(sa.BigInteger, "spent gap_after"),
        sa.Column("reached", pg.ARRAY(sa.Text)),
        sa.Column("closed", sa.Text),
    )
    op.create_table(
        "problem_set_members",
        sa.Column("set_id", _UUID, sa.ForeignKey("problem_sets.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("problem_id", _UUID, sa.ForeignKey("problems.id"), nullable=False),
    )
    op.create_table(
        "runs",
        _id(),
        _project(),
        sa.Column("problem_id", _UUID, sa.ForeignKey("problems.id"), nullable=False),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
        sa.Column("mutator_id", _UUID, sa.ForeignKey("policies.id")),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("spec", pg.JSONB, nullable=False),
        sa.Column("own", sa.Boolean, nullable=False, server_default="true"),
        *_required(sa.Text, "name note", ""),
        sa.Column("tags", pg.ARRAY(sa.Text), nullable=False, server_default="{}"),
        _created(),
        *_visibility(),
        sa.Column("sources", pg.JSONB, nullable=False, server_default="[]"),
        sa.Column("estimate", pg.JSONB),
    )
    _index("ix_runs_hidden", "runs", "project_id id", where="archived_at IS NOT NULL OR deleted_at IS NOT NULL")
    _index("ix_runs_named", "runs", "project_id id", where="name <> ''")
    _index("ix_runs_own", "runs", "project_id id", where="own")
    _index("ix_runs_policy_id", "runs", "policy_id")
    _index("ix_runs_problem_id", "runs", "problem_id")
    _index("ix_runs_project", "runs", "project_id id")
    _index("ix_runs_tags", "runs", "tags", where="tags <> '{}'", using="gin")
    op.create_table(
        "sessions",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("token_id", _UUID, sa.ForeignKey("tokens.id")),
        sa.Column("proof", sa.LargeBinary),
        _created(),
        sa.Column("expires_at", _TIME, nullable=False),
    )
    op.create_table(
        "tournament_amendments",
        sa.Column("tournament_id", _UUID, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("extension", pg.JSONB, nullable=False),
        sa.Column("ended_runs", sa.Integer, nullable=False),
        _created(),
    )
    op.create_table(
        "webhook_deliveries",
        _id(),
        sa.Column("webhook_id", _UUID, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("data", pg.JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="pending"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        _created(),
        sa.Column("due_at", _TIME, nullable=False, server_default=_NOW),
        *_optional(_TIME, "lease_until ended_at"),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
    )
    _index("ix_webhook_deliveries_due", "webhook_deliveries", "webhook_id due_at", where="state = 'pending'")
    _index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", "webhook_id id")
    op.create_table(
        "advice",
        _run(primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("rollout_id", _UUID),
        sa.Column("author", sa.Text),
        sa.Column("text", sa.Text, nullable=False),
        *_required(sa.BigInteger, "judged won", "0"),
        sa.Column("dropped", sa.Boolean, nullable=False, server_default="false"),
        _created(),
    )
    op.create_table(
        "campaign_runs",
        sa.Column("campaign_id", _UUID, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id")),
        sa.Column("learner", sa.Boolean, nullable=False, server_default="false"),
    )
    op.create_table(
        "candidates",
        _id(),
        _run(),
        *_required(sa.BigInteger, "number targets spent_evaluations spent_tokens memory_bytes"),
        sa.Column("work_id", _UUID, nullable=False),
        *_required(sa.Integer, "ord island"),
        *_optional(_UUID, "rollout_id policy_id"),
        *_required(sa.Text, "role program program_hash status tier"),
        *_required(_INTS, "parents inspirations"),
        *_optional(sa.Text, "failure failure_reason failure_detail stopped_at shape reused_from attested_by"),
        *_optional(sa.Text, "environment origin"),
        *_optional(_FLOATS, "rewards first error"),
        sa.Column("scalar", sa.Double),
        sa.Column("refuted", sa.BigInteger, nullable=False, server_default="0"),
        *_required(sa.Double, "spent_seconds wall_s cpu_s"),
        *_optional(sa.BigInteger, "duplicate_of carried_from"),
        sa.Column("artifacts", pg.JSONB, nullable=False),
        _created(),
        sa.Column("repeats", pg.JSONB),
        *_optional(sa.Integer, "trial evaluations"),
        sa.UniqueConstraint("run_id", "number"),
        sa.UniqueConstraint("work_id", "ord"),
    )
    _index("ix_candidates_shape", "candidates", "run_id shape", where="shape IS NOT NULL")
    _index("ix_candidates_target", "candidates", "run_id spent_evaluations", where="targets <> 0")
    _index("ix_candidates_twin", "candidates", "run_id program_hash", where="duplicate_of IS NULL")
    op.create_table(
        "claims",
        _run(primary_key=True),
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("unlock", sa.Boolean, nullable=False),
        *_required(sa.BigInteger, "evaluations tokens"),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("at", _TIME, nullable=False, server_default=_NOW),
    )
    _index("ix_claims_at", "claims", "at")
    op.create_table(
        "elites",
        _run(primary_key=True),
        sa.Column("island", sa.Integer, primary_key=True),
        sa.Column("cell", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("fitness", sa.Double, nullable=False),
        sa.Column("rewards", _FLOATS, nullable=False),
        sa.Column("error", _FLOATS),
        sa.Column("evaluations", sa.Integer),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "events",
        _run(primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", pg.JSONB, nullable=False),
        sa.Column("at", _TIME, nullable=False, server_default=_NOW),
    )
    op.create_table(
        "results",
        sa.Column("evaluator_digest", sa.Text, primary_key=True),
        sa.Column("tier", sa.Text, primary_key=True),
        sa.Column("program_hash", sa.Text, primary_key=True),
        _run(),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    _index("ix_results_run_id", "results", "run_id")
    op.create_table(
        "rollouts",
        _id(),
        _run(),
        sa.Column("work_id", _UUID, nullable=False),
        *_required(sa.Integer, "ord prompt_tokens completion_tokens answers"),
        *_required(sa.BigInteger, "batch seed"),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
        *_required(sa.Text, "role prompt_digest completion finish_reason"),
        sa.Column("latency_s", sa.Double, nullable=False),
        *_optional(sa.Double, "mean_logprob cost"),
        sa.Column("logprobs", pg.ARRAY(sa.REAL)),
        sa.Column("token_ids", pg.ARRAY(sa.Integer)),
        sa.Column("reasoning_tokens", sa.Integer, nullable=False, server_default="0"),
        *_optional(sa.Text, "reason author model"),
        sa.Column("advice", sa.BigInteger),
        _created(),
        sa.UniqueConstraint("work_id", "ord"),
    )
    _index("ix_rollouts_run", "rollouts", "run_id batch ord")
    op.create_table(
        "run_policies",
        _run(primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
    )
    _index("ix_run_policies_policy_id", "run_policies", "policy_id")
    op.create_table(
        "run_seeds",
        _run(primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("origin", sa.Text),
    )
    op.create_table(
        "run_progress",
        _run(primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        *_optional(sa.Text, "reason stopping alarm"),
        *_optional(sa.BigInteger, "budget_evaluations budget_tokens best_number granted"),
        *_optional(sa.Double, "budget_seconds dearest"),
        *_required(sa.Double, "seconds cost", "0"),
        *_optional(_TIME, "running_since started_at finished_at pruned_at"),
        *_required(sa.BigInteger, "evaluations tokens reserved_evaluations reserved_tokens numbers batches", "0"),
        *_required(sa.BigInteger, "evaluated failed duplicates improvements rollouts best_targets claimed", "0"),
        *_required(sa.BigInteger, "confirmed reused improved_at events revision estimated_tokens polished", "0"),
        *_required(sa.Integer, "live lanes", "0"),
        *_required(pg.JSONB, "failures reasons recent arms advice streaks diagnosis learning trials final", "{}"),
        sa.Column("best", _FLOATS, nullable=False, server_default="{}"),
        sa.CheckConstraint("evaluations + reserved_evaluations <= granted", name="evaluations_granted"),
        sa.CheckConstraint("evaluations + reserved_evaluations <= budget_evaluations", name="evaluations_in_budget"),
        sa.CheckConstraint("reserved_evaluations >= 0 AND reserved_tokens >= 0 AND live >= 0", name="reservations"),
        sa.CheckConstraint("tokens + reserved_tokens <= budget_tokens", name="tokens_in_budget"),
        postgresql_with={"fillfactor": "50"},
    )
    _index("ix_run_progress_unended", "run_progress", "run_id", where="state IN ('created', 'running', 'paused')")
    op.create_table(
        "tournament_runs",
        sa.Column("tournament_id", _UUID, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        *_required(sa.Text, "entrant problem"),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id")),
        sa.Column("ended", sa.Boolean, nullable=False, server_default="false"),
        sa.Column("revision", sa.BigInteger),
        *_optional(sa.Text, "state reason"),
        sa.Column("numbers", _FLOATS),
        sa.UniqueConstraint("tournament_id", "entrant", "problem", "seed"),
    )
    _index("ix_tournament_runs_open", "tournament_runs", "tournament_id ord", where="NOT ended")
    _index("ix_tournament_runs_revision", "tournament_runs", "tournament_id revision")
    op.create_table(
        "work",
        _id(),
        _run(),
        *_required(sa.Text, "kind state"),
        sa.Column("lane", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        *_required(sa.Integer, "attempt resends", "0"),
        sa.Column("lease_token", _UUID),
        *_optional(_TIME, "lease_until dispatched_at"),
        *_required(sa.BigInteger, "reserved_evaluations reserved_tokens", "0"),
        sa.Column("payload", pg.JSONB, nullable=False),
        sa.Column("reason", sa.Text),
        _created(),
        postgresql_with={"fillfactor": "70"},
    )
    _index("ix_work_live", "work", "run_id state", where="state IN ('ready', 'leased', 'parked')")
    op.create_table(
        "external_evaluations",
        _id(),
        _run(),
        sa.Column("work_id", _UUID, nullable=False),
        *_required(sa.BigInteger, "number seed"),
        *_required(sa.Text, "program program_hash state"),
        sa.Column("capabilities", pg.ARRAY(sa.Text), nullable=False),
        *_optional(pg.JSONB, "measured result"),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_token", _UUID),
        sa.Column("lease_until", _TIME),
        sa.Column("holder", sa.Text),
        _created(),
        sa.UniqueConstraint("work_id", "program_hash", "seed"),
        postgresql_with={"fillfactor": "70"},
    )
    _index("ix_external_evaluations_run_id", "external_evaluations", "run_id")
    _index("ix_external_evaluations_open", "external_evaluations", "id", where="state IN ('ready', 'leased')")
    op.create_table(
        "asks",
        _id(),
        _run(),
        *_required(sa.Text, "role system user"),
        sa.Column("island", sa.Integer, nullable=False),
        *_required(_INTS, "parents inspirations"),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("advice", sa.BigInteger),
        _created(),
    )
    _index("ix_asks_run_id", "asks", "run_id")
    op.create_table("proposal_answers", _id(), _run(), sa.Column("answer", pg.JSONB, nullable=False), _created())
    _index("ix_proposal_answers_run_id", "proposal_answers", "run_id")
    op.create_table(
        "engine_sessions",
        _id(),
        _run(),
        sa.Column("attempt", sa.Integer, nullable=False),
        *_required(sa.Text, "holder version"),
        sa.Column("state", sa.Text, nullable=False, server_default="open"),
        sa.Column("lease_until", _TIME, nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("processor_s", sa.Double, nullable=False, server_default="0"),
        *_required(pg.JSONB, "requests refused", "{}"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.clock_timestamp()),
    )
    _index("ix_engine_sessions_run_id", "engine_sessions", "run_id")
    op.execute(f"INSERT INTO projects (id, slug) VALUES ('{_DEFAULT_PROJECT}', 'default')")  # noqa: S608 - a constant
    op.execute(
        "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF TG_OP = 'DELETE' AND current_setting('speciate.audit_retention', true) = 'on' THEN RETURN NULL; END IF;"
        " RAISE EXCEPTION 'the audit log is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
        " FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
    )
