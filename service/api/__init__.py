"""The REST API, one module per resource."""

from typing import Final

from fastapi import APIRouter

from service.api import (
    administration,
    campaigns,
    engines,
    evaluations,
    monitoring,
    policies,
    problems,
    proposals,
    run_results,
    runs,
    tournaments,
    unlocks,
    webhooks,
)

OPEN: Final[tuple[APIRouter, ...]] = (monitoring.probes, problems.schemas)
"""Routers without authentication."""

ROUTERS: Final[tuple[APIRouter, ...]] = (
    # The busiest routes come first, because FastAPI tries routes in order.
    runs.router,
    run_results.router,
    proposals.results,
    unlocks.router,
    monitoring.router,
    problems.router,
    problems.problem_sets,
    policies.router,
    runs.strategies,
    run_results.by_id,
    tournaments.router,
    campaigns.router,
    administration.router,
    webhooks.router,
)
"""Routers in matching order."""

PROPOSER_ROUTERS: Final[tuple[APIRouter, ...]] = (proposals.router, engines.router)
"""Routers that require scope ``propose``."""

EVALUATOR_ROUTERS: Final[tuple[APIRouter, ...]] = (evaluations.router,)
"""Routers that require scope ``evaluate``."""
