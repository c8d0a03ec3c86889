"""Problems, problem sets and policies."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Id, created, hidden, named_table, required, table

problems = named_table(
    "problems",
    *required(sa.Text, "digest evaluator_digest"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    created(),
    *hidden(),
)

problem_sets = named_table("problem_sets", sa.Column("title", sa.Text, nullable=False), created())

problem_set_members = table(
    "problem_set_members",
    sa.Column("set_id", Id, sa.ForeignKey("problem_sets.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("problem_id", Id, sa.ForeignKey("problems.id"), nullable=False),
)

policies = named_table(
    "policies",
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    created(),
    *hidden(),
)

# API keys of policy endpoints, sealed with SPECIATE_SECRET_KEY; policy definitions refer to the id.
policy_keys = table(
    "policy_keys", sa.Column("id", sa.Text, primary_key=True), sa.Column("sealed", sa.Text, nullable=False), created()
)
