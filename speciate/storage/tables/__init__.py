"""The database tables. Ids are UUIDv7; vectors are ``float8[]`` in the problem's declared order."""

from __future__ import annotations

from speciate.storage.tables.access import audit, idempotency_keys, projects, sessions, tokens
from speciate.storage.tables.candidates import candidates, elites, prompts, results, rollouts
from speciate.storage.tables.catalog import policies, policy_keys, problem_set_members, problem_sets, problems
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID, metadata
from speciate.storage.tables.declarations import (
    campaign_runs,
    campaign_slices,
    campaigns,
    tournament_amendments,
    tournament_runs,
    tournaments,
)
from speciate.storage.tables.runs import (
    advice,
    asks,
    claims,
    events,
    external_evaluations,
    progress,
    proposal_answers,
    reconciler,
    run_policies,
    run_seeds,
    runs,
    work,
)
from speciate.storage.tables.webhooks import webhook_deliveries, webhooks

__all__ = [
    "DEFAULT_PROJECT_ID",
    "advice",
    "asks",
    "audit",
    "campaign_runs",
    "campaign_slices",
    "campaigns",
    "candidates",
    "claims",
    "elites",
    "events",
    "external_evaluations",
    "idempotency_keys",
    "metadata",
    "policies",
    "policy_keys",
    "problem_set_members",
    "problem_sets",
    "problems",
    "progress",
    "projects",
    "prompts",
    "proposal_answers",
    "reconciler",
    "results",
    "rollouts",
    "run_policies",
    "run_seeds",
    "runs",
    "sessions",
    "tokens",
    "tournament_amendments",
    "tournament_runs",
    "tournaments",
    "webhook_deliveries",
    "webhooks",
    "work",
]
