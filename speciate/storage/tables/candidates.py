"""Completions, candidates and the archive."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Floats, Id, Ints, created, metadata

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
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("work_id", Id, nullable=False),
    sa.Column("ord", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("policy_id", Id, sa.ForeignKey("policies.id"), nullable=False),
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
    created(),
    sa.UniqueConstraint("work_id", "ord"),
    sa.Index("ix_rollouts_run", "run_id", "batch", "ord"),
)

candidates = sa.Table(
    "candidates",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("work_id", Id, nullable=False),
    sa.Column("ord", sa.Integer, nullable=False),
    sa.Column("rollout_id", Id),
    sa.Column("policy_id", Id),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("island", sa.Integer, nullable=False),
    sa.Column("parents", Ints, nullable=False),
    sa.Column("inspirations", Ints, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("program_hash", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("failure", sa.Text),
    sa.Column("failure_reason", sa.Text),
    sa.Column("failure_detail", sa.Text),
    sa.Column("rewards", Floats),
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
    created(),
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
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)

elites = sa.Table(
    "elites",
    metadata,
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("island", sa.Integer, primary_key=True),
    sa.Column("cell", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("fitness", pg.DOUBLE_PRECISION, nullable=False),
    sa.Column("rewards", Floats, nullable=False),
    postgresql_with={"fillfactor": "70"},
)
