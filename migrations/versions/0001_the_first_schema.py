"""the first schema

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reconciler",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("alive_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reconciler")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.UUID(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("definition", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("slug", "digest", name=op.f("uq_policies_slug_digest")),
        sa.UniqueConstraint("slug", "version", name=op.f("uq_policies_slug_version")),
    )
    op.create_table(
        "problem_sets",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problem_sets")),
        sa.UniqueConstraint("slug", name=op.f("uq_problem_sets_slug")),
    )
    op.create_table(
        "problems",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("evaluator_digest", sa.Text(), nullable=False),
        sa.Column("definition", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problems")),
        sa.UniqueConstraint("slug", "digest", name=op.f("uq_problems_slug_digest")),
        sa.UniqueConstraint("slug", "version", name=op.f("uq_problems_slug_version")),
    )
    op.create_table(
        "prompts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_prompts")),
    )
    op.create_table(
        "problem_set_members",
        sa.Column("set_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.UUID(), nullable=False),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name=op.f("fk_problem_set_members_problem_id")),
        sa.ForeignKeyConstraint(
            ["set_id"], ["problem_sets.id"], name=op.f("fk_problem_set_members_set_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("set_id", "ord", name=op.f("pk_problem_set_members")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("problem_id", sa.UUID(), nullable=False),
        sa.Column("policy_id", sa.UUID(), nullable=False),
        sa.Column("mutator_id", sa.UUID(), nullable=True),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["mutator_id"], ["policies.id"], name=op.f("fk_runs_mutator_id")),
        sa.ForeignKeyConstraint(["policy_id"], ["policies.id"], name=op.f("fk_runs_policy_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name=op.f("fk_runs_problem_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_policy_id"), "runs", ["policy_id"], unique=False)
    op.create_index(op.f("ix_runs_problem_id"), "runs", ["problem_id"], unique=False)
    op.create_table(
        "candidates",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("work_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("rollout_id", sa.UUID(), nullable=True),
        sa.Column("policy_id", sa.UUID(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("island", sa.Integer(), nullable=False),
        sa.Column("parents", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("inspirations", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("program_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("rewards", postgresql.ARRAY(sa.DOUBLE_PRECISION()), nullable=True),
        sa.Column("scalar", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("targets", sa.BigInteger(), nullable=False),
        sa.Column("refuted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("spent_evaluations", sa.BigInteger(), nullable=False),
        sa.Column("spent_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_seconds", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("duplicate_of", sa.BigInteger(), nullable=True),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("wall_s", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("cpu_s", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("artifacts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_candidates_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidates")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_candidates_run_id_number")),
        sa.UniqueConstraint("work_id", "ord", name=op.f("uq_candidates_work_id_ord")),
    )
    op.create_index(
        "ix_candidates_target",
        "candidates",
        ["run_id", "spent_evaluations"],
        unique=False,
        postgresql_where=sa.text("targets <> 0"),
    )
    op.create_index(
        "ix_candidates_twin",
        "candidates",
        ["run_id", "program_hash"],
        unique=False,
        postgresql_where=sa.text("duplicate_of IS NULL"),
    )
    op.create_table(
        "claims",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("unlock", sa.Boolean(), nullable=False),
        sa.Column("evaluations", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_claims_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "target", "number", name=op.f("pk_claims")),
    )
    op.create_table(
        "elites",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("island", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("fitness", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("rewards", postgresql.ARRAY(sa.DOUBLE_PRECISION()), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_elites_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "island", "cell", name=op.f("pk_elites")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "rollouts",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("work_id", sa.UUID(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("policy_id", sa.UUID(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("prompt_digest", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("latency_s", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("mean_logprob", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["policy_id"], ["policies.id"], name=op.f("fk_rollouts_policy_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_rollouts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
        sa.UniqueConstraint("work_id", "ord", name=op.f("uq_rollouts_work_id_ord")),
    )
    op.create_index("ix_rollouts_run", "rollouts", ["run_id", "batch", "ord"], unique=False)
    op.create_table(
        "run_progress",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("budget_evaluations", sa.BigInteger(), nullable=True),
        sa.Column("budget_tokens", sa.BigInteger(), nullable=True),
        sa.Column("budget_seconds", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("seconds", sa.DOUBLE_PRECISION(), server_default="0", nullable=False),
        sa.Column("running_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("evaluations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_evaluations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("numbers", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("batches", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("live", sa.Integer(), server_default="0", nullable=False),
        sa.Column("evaluated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("duplicates", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("rollouts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("reasons", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("best", postgresql.ARRAY(sa.DOUBLE_PRECISION()), server_default="{}", nullable=False),
        sa.Column("best_scalar", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("claimed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("confirmed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("recent", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("alarm", sa.Text(), nullable=True),
        sa.Column("events", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "evaluations + reserved_evaluations <= budget_evaluations",
            name=op.f("ck_run_progress_evaluations_in_budget"),
        ),
        sa.CheckConstraint(
            "reserved_evaluations >= 0 AND reserved_tokens >= 0 AND live >= 0",
            name=op.f("ck_run_progress_reservations"),
        ),
        sa.CheckConstraint("tokens + reserved_tokens <= budget_tokens", name=op.f("ck_run_progress_tokens_in_budget")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_progress_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_progress")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "work",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("lane", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.UUID(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rings", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reserved_evaluations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_work_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_work_live",
        "work",
        ["run_id", "state"],
        unique=False,
        postgresql_where=sa.text("state IN ('ready', 'leased')"),
    )


def downgrade() -> None:
    op.drop_index("ix_work_live", table_name="work", postgresql_where=sa.text("state IN ('ready', 'leased')"))
    op.drop_table("work")
    op.drop_table("run_progress")
    op.drop_index("ix_rollouts_run", table_name="rollouts")
    op.drop_table("rollouts")
    op.drop_table("events")
    op.drop_table("elites")
    op.drop_table("claims")
    op.drop_index("ix_candidates_twin", table_name="candidates", postgresql_where=sa.text("duplicate_of IS NULL"))
    op.drop_index("ix_candidates_target", table_name="candidates", postgresql_where=sa.text("targets <> 0"))
    op.drop_table("candidates")
    op.drop_index(op.f("ix_runs_problem_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_policy_id"), table_name="runs")
    op.drop_table("runs")
    op.drop_table("problem_set_members")
    op.drop_table("prompts")
    op.drop_table("problems")
    op.drop_table("problem_sets")
    op.drop_table("policies")
    op.drop_table("idempotency_keys")
    op.drop_table("reconciler")
