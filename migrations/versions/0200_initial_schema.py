"""initial schema

Revision ID: 0200
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0200"
down_revision = None
branch_labels = None
depends_on = None

_DEFAULT_PROJECT = "00000000-0000-0000-0000-000000000000"
_NOW = sa.text("now()")
_TIME = sa.DateTime(timezone=True)
_UUID = pg.UUID(as_uuid=True)


def _created() -> sa.Column:
    return sa.Column("created_at", _TIME, nullable=False, server_default=_NOW)


def _project() -> sa.Column:
    default = sa.text(f"'{_DEFAULT_PROJECT}'")
    return sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False, server_default=default)


def _visibility() -> list[sa.Column]:
    return [sa.Column("archived_at", _TIME), sa.Column("deleted_at", _TIME)]


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("at", _TIME, nullable=False, server_default=_NOW),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("token_id", _UUID),
        sa.Column("project_id", _UUID),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
    )
    op.create_index("ix_audit_project", "audit", ["project_id", "id"])
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
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("slug", sa.Text, nullable=False, unique=True),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        sa.Column("concurrent_runs", sa.BigInteger),
        sa.Column("evaluations_per_day", sa.BigInteger),
        sa.Column("tokens_per_day", sa.BigInteger),
        _created(),
    )
    op.create_table(
        "prompts",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
    )
    op.create_table(
        "reconciler",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("alive_at", _TIME, nullable=False),
    )
    op.create_table(
        "campaigns",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("declaration", pg.JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        _created(),
        sa.Column("finished_at", _TIME),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "policies",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("definition", pg.JSONB, nullable=False),
        _created(),
        *_visibility(),
        sa.UniqueConstraint("project_id", "slug", "digest"),
        sa.UniqueConstraint("project_id", "slug", "version"),
    )
    op.create_table(
        "problem_sets",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        _created(),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "problems",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("evaluator_digest", sa.Text, nullable=False),
        sa.Column("definition", pg.JSONB, nullable=False),
        _created(),
        *_visibility(),
        sa.UniqueConstraint("project_id", "slug", "digest"),
        sa.UniqueConstraint("project_id", "slug", "version"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        _created(),
        sa.Column("expires_at", _TIME),
        sa.Column("last_used_at", _TIME),
        sa.Column("revoked_at", _TIME),
    )
    op.create_index("ix_tokens_project_id", "tokens", ["project_id"])
    op.create_table(
        "tournaments",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("declaration", pg.JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        _created(),
        sa.Column("finished_at", _TIME),
        sa.UniqueConstraint("project_id", "slug"),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("project_id", _UUID, sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", pg.ARRAY(sa.Text), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        _created(),
    )
    op.create_index("ix_webhooks_project_id", "webhooks", ["project_id"])
    op.create_table(
        "campaign_slices",
        sa.Column("campaign_id", _UUID, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
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
    op.create_table(
        "problem_set_members",
        sa.Column("set_id", _UUID, sa.ForeignKey("problem_sets.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("problem_id", _UUID, sa.ForeignKey("problems.id"), nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", _UUID, primary_key=True),
        _project(),
        sa.Column("problem_id", _UUID, sa.ForeignKey("problems.id"), nullable=False),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
        sa.Column("mutator_id", _UUID, sa.ForeignKey("policies.id")),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("spec", pg.JSONB, nullable=False),
        sa.Column("own", sa.Boolean, nullable=False, server_default="true"),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("tags", pg.ARRAY(sa.Text), nullable=False, server_default="{}"),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        _created(),
        *_visibility(),
    )
    op.create_index(
        "ix_runs_hidden",
        "runs",
        ["project_id", "id"],
        postgresql_where=sa.text("archived_at IS NOT NULL OR deleted_at IS NOT NULL"),
    )
    op.create_index("ix_runs_named", "runs", ["project_id", "id"], postgresql_where=sa.text("name <> ''"))
    op.create_index("ix_runs_policy_id", "runs", ["policy_id"])
    op.create_index("ix_runs_problem_id", "runs", ["problem_id"])
    op.create_index("ix_runs_project", "runs", ["project_id", "id"])
    op.create_index("ix_runs_tags", "runs", ["tags"], postgresql_using="gin", postgresql_where=sa.text("tags <> '{}'"))
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
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("webhook_id", _UUID, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("data", pg.JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="pending"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        _created(),
        sa.Column("due_at", _TIME, nullable=False, server_default=_NOW),
        sa.Column("lease_until", _TIME),
        sa.Column("ended_at", _TIME),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["webhook_id", "due_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id", "id"])
    op.create_table(
        "advice",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("rollout_id", _UUID),
        sa.Column("author", sa.Text),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("judged", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("won", sa.BigInteger, nullable=False, server_default="0"),
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
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("work_id", _UUID, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("rollout_id", _UUID),
        sa.Column("policy_id", _UUID),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("island", sa.Integer, nullable=False),
        sa.Column("parents", pg.ARRAY(sa.BigInteger), nullable=False),
        sa.Column("inspirations", pg.ARRAY(sa.BigInteger), nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("program_hash", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("failure_reason", sa.Text),
        sa.Column("failure_detail", sa.Text),
        sa.Column("rewards", pg.ARRAY(pg.DOUBLE_PRECISION)),
        sa.Column("scalar", pg.DOUBLE_PRECISION),
        sa.Column("targets", sa.BigInteger, nullable=False),
        sa.Column("refuted", sa.BigInteger, nullable=False, server_default="0"),
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
        sa.UniqueConstraint("run_id", "number"),
        sa.UniqueConstraint("work_id", "ord"),
    )
    op.create_index(
        "ix_candidates_shape", "candidates", ["run_id", "shape"], postgresql_where=sa.text("shape IS NOT NULL")
    )
    op.create_index(
        "ix_candidates_target", "candidates", ["run_id", "spent_evaluations"], postgresql_where=sa.text("targets <> 0")
    )
    op.create_index(
        "ix_candidates_twin", "candidates", ["run_id", "program_hash"], postgresql_where=sa.text("duplicate_of IS NULL")
    )
    op.create_table(
        "claims",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("unlock", sa.Boolean, nullable=False),
        sa.Column("evaluations", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False),
        sa.Column("at", _TIME, nullable=False, server_default=_NOW),
    )
    op.create_index("ix_claims_at", "claims", ["at"])
    op.create_table(
        "elites",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("island", sa.Integer, primary_key=True),
        sa.Column("cell", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("fitness", pg.DOUBLE_PRECISION, nullable=False),
        sa.Column("rewards", pg.ARRAY(pg.DOUBLE_PRECISION), nullable=False),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "events",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
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
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_results_run_id", "results", ["run_id"])
    op.create_table(
        "rollouts",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("work_id", _UUID, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
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
    )
    op.create_index("ix_rollouts_run", "rollouts", ["run_id", "batch", "ord"])
    op.create_table(
        "run_policies",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("policy_id", _UUID, sa.ForeignKey("policies.id"), nullable=False),
        sa.Column("weight", pg.DOUBLE_PRECISION, nullable=False),
    )
    op.create_index("ix_run_policies_policy_id", "run_policies", ["policy_id"])
    op.create_table(
        "run_seeds",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("origin", sa.Text),
    )
    op.create_table(
        "run_progress",
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("budget_evaluations", sa.BigInteger),
        sa.Column("budget_tokens", sa.BigInteger),
        sa.Column("budget_seconds", pg.DOUBLE_PRECISION),
        sa.Column("seconds", pg.DOUBLE_PRECISION, nullable=False, server_default="0"),
        sa.Column("running_since", _TIME),
        sa.Column("started_at", _TIME),
        sa.Column("finished_at", _TIME),
        sa.Column("evaluations", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reserved_evaluations", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("numbers", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("batches", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("live", sa.Integer, nullable=False, server_default="0"),
        sa.Column("evaluated", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("duplicates", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("improvements", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("rollouts", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("cost", pg.DOUBLE_PRECISION, nullable=False, server_default="0"),
        sa.Column("failures", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("reasons", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("best", pg.ARRAY(pg.DOUBLE_PRECISION), nullable=False, server_default="{}"),
        sa.Column("best_number", sa.BigInteger),
        sa.Column("best_targets", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("claimed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("confirmed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("recent", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("reused", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("granted", sa.BigInteger),
        sa.Column("improved_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("stopping", sa.Text),
        sa.Column("arms", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("advice", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("streaks", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("diagnosis", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("learning", pg.JSONB, nullable=False, server_default="{}"),
        sa.Column("alarm", sa.Text),
        sa.Column("pruned_at", _TIME),
        sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        sa.CheckConstraint("evaluations + reserved_evaluations <= granted", name="evaluations_granted"),
        sa.CheckConstraint("evaluations + reserved_evaluations <= budget_evaluations", name="evaluations_in_budget"),
        sa.CheckConstraint("reserved_evaluations >= 0 AND reserved_tokens >= 0 AND live >= 0", name="reservations"),
        sa.CheckConstraint("tokens + reserved_tokens <= budget_tokens", name="tokens_in_budget"),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index(
        "ix_run_progress_unended",
        "run_progress",
        ["run_id"],
        postgresql_where=sa.text("state IN ('created', 'running', 'paused')"),
    )
    op.create_table(
        "tournament_runs",
        sa.Column("tournament_id", _UUID, sa.ForeignKey("tournaments.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("entrant", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id")),
        sa.Column("ended", sa.Boolean, nullable=False, server_default="false"),
        sa.Column("revision", sa.BigInteger),
        sa.Column("state", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("numbers", pg.ARRAY(pg.DOUBLE_PRECISION)),
        sa.UniqueConstraint("tournament_id", "entrant", "problem", "seed"),
    )
    op.create_index(
        "ix_tournament_runs_open", "tournament_runs", ["tournament_id", "ord"], postgresql_where=sa.text("NOT ended")
    )
    op.create_index("ix_tournament_runs_revision", "tournament_runs", ["tournament_id", "revision"])
    op.create_table(
        "work",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lane", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_token", _UUID),
        sa.Column("lease_until", _TIME),
        sa.Column("dispatched_at", _TIME),
        sa.Column("resends", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reserved_evaluations", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reserved_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("payload", pg.JSONB, nullable=False),
        sa.Column("reason", sa.Text),
        _created(),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_work_live", "work", ["run_id", "state"], postgresql_where=sa.text("state IN ('ready', 'leased', 'parked')")
    )
    op.create_table(
        "external_evaluations",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("work_id", _UUID, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("program_hash", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("capabilities", pg.ARRAY(sa.Text), nullable=False),
        sa.Column("measured", pg.JSONB),
        sa.Column("result", pg.JSONB),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_token", _UUID),
        sa.Column("lease_until", _TIME),
        sa.Column("holder", sa.Text),
        _created(),
        sa.UniqueConstraint("work_id", "program_hash", "seed"),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("ix_external_evaluations_run_id", "external_evaluations", ["run_id"])
    op.create_index(
        "ix_external_evaluations_open",
        "external_evaluations",
        ["id"],
        postgresql_where=sa.text("state IN ('ready', 'leased')"),
    )
    op.create_table(
        "asks",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("island", sa.Integer, nullable=False),
        sa.Column("parents", pg.ARRAY(sa.BigInteger), nullable=False),
        sa.Column("inspirations", pg.ARRAY(sa.BigInteger), nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("advice", sa.BigInteger),
        _created(),
    )
    op.create_index("ix_asks_run_id", "asks", ["run_id"])
    op.create_table(
        "proposal_answers",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("run_id", _UUID, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("answer", pg.JSONB, nullable=False),
        _created(),
    )
    op.create_index("ix_proposal_answers_run_id", "proposal_answers", ["run_id"])
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


def downgrade() -> None:
    op.execute("DROP TRIGGER audit_is_append_only ON audit")
    op.execute("DROP FUNCTION audit_is_append_only()")
    tables = (
        "proposal_answers asks "
        "external_evaluations work tournament_runs run_progress run_seeds run_policies rollouts results events elites "
        "claims candidates campaign_runs advice webhook_deliveries tournament_amendments sessions runs "
        "problem_set_members campaign_slices webhooks tournaments tokens problems problem_sets policies campaigns "
        "reconciler prompts projects policy_keys idempotency_keys audit"
    )
    for table in tables.split():
        op.drop_table(table)
