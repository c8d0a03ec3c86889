"""Completions and candidates."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Floats, Id, Ints, created, optional, required, table

rollouts = table(
    "rollouts",
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("work_id", Id, nullable=False),
    *required(sa.Integer, "ord prompt_tokens completion_tokens answers"),
    *required(sa.BigInteger, "batch seed"),
    sa.Column("policy_id", Id, sa.ForeignKey("policies.id"), nullable=False),
    *required(sa.Text, "role prompt_digest completion finish_reason"),
    sa.Column("latency_s", pg.DOUBLE_PRECISION, nullable=False),
    *optional(pg.DOUBLE_PRECISION, "mean_logprob cost"),
    sa.Column("logprobs", pg.ARRAY(sa.REAL)),
    sa.Column("token_ids", pg.ARRAY(sa.Integer)),
    sa.Column("reasoning_tokens", sa.Integer, nullable=False, server_default="0"),
    *optional(sa.Text, "reason author model"),
    sa.Column("advice", sa.BigInteger),
    created(),
)

candidates = table(
    "candidates",
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    *required(sa.BigInteger, "number targets spent_evaluations spent_tokens memory_bytes"),
    sa.Column("work_id", Id, nullable=False),
    *required(sa.Integer, "ord island"),
    *optional(Id, "rollout_id policy_id"),
    *required(sa.Text, "role program program_hash status tier"),
    *required(Ints, "parents inspirations"),
    *optional(
        sa.Text, "failure failure_reason failure_detail stopped_at shape reused_from attested_by environment origin"
    ),
    *optional(Floats, "rewards first error"),
    sa.Column("scalar", pg.DOUBLE_PRECISION),
    sa.Column("refuted", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("repeats", pg.JSONB),
    *required(pg.DOUBLE_PRECISION, "spent_seconds wall_s cpu_s"),
    *optional(sa.BigInteger, "duplicate_of carried_from"),
    sa.Column("artifacts", pg.JSONB, nullable=False),
    *optional(sa.Integer, "trial evaluations"),
    created(),
)
