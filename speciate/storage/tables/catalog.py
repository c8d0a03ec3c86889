"""Problems, problem sets and policies."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from speciate.storage.tables.columns import Id, created, hidden, metadata, project, required

problems = sa.Table(
    "problems",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    *required(sa.Text, "slug digest evaluator_digest"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    created(),
    *hidden(),
)

problem_sets = sa.Table(
    "problem_sets",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    *required(sa.Text, "slug title"),
    created(),
)

problem_set_members = sa.Table(
    "problem_set_members",
    metadata,
    sa.Column("set_id", Id, sa.ForeignKey("problem_sets.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ord", sa.Integer, primary_key=True),
    sa.Column("problem_id", Id, sa.ForeignKey("problems.id"), nullable=False),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project(),
    *required(sa.Text, "slug digest"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", pg.JSONB, nullable=False),
    created(),
    *hidden(),
)

# API keys of policy endpoints, sealed with SPECIATE_SECRET_KEY; policy definitions refer to the id.
policy_keys = sa.Table(
    "policy_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("sealed", sa.Text, nullable=False),
    created(),
)
