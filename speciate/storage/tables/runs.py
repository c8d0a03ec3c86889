"""Runs, and prompts for proposers outside the service."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Id, Ints, created, hidden, project, required, table

runs = table(
    "runs",
    sa.Column("id", Id, primary_key=True),
    project(),
    sa.Column("problem_id", Id, sa.ForeignKey("problems.id"), nullable=False),
    sa.Column("policy_id", Id, sa.ForeignKey("policies.id"), nullable=False),
    sa.Column("mutator_id", Id, sa.ForeignKey("policies.id")),
    sa.Column("strategy", sa.Text, nullable=False),
    sa.Column("spec", pg.JSONB, nullable=False),
    # Runs from which it took seed programs, with what they had spent by then: fields of ``SourceRun``.
    sa.Column("sources", pg.JSONB, nullable=False, server_default="[]"),
    sa.Column("estimate", pg.JSONB),
    # False if a tournament or campaign started the run and counts towards the quotas in its place.
    sa.Column("own", sa.Boolean, nullable=False, server_default="true"),
    # Labels; only they and the visibility change.
    *required(sa.Text, "name note", default=""),
    sa.Column("tags", pg.ARRAY(sa.Text), nullable=False, server_default="{}"),
    created(),
    *hidden(),
)

# Prompts that proposers outside the service received; the id is the token that ties an answer to its prompt (ADR 38).
asks = table(
    "asks",
    sa.Column("id", Id, primary_key=True),
    sa.Column("run_id", Id, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    *required(sa.Text, "role system user"),
    sa.Column("island", sa.Integer, nullable=False),
    *required(Ints, "parents inspirations"),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("advice", sa.BigInteger),
    created(),
)
