"""The routes, one small file for each thing that can be asked about."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from service.api import (
    audit,
    candidates,
    declarations,
    events,
    health,
    metrics,
    policies,
    problem_sets,
    problems,
    projects,
    rollouts,
    run_results,
    runs,
    steering,
    strategies,
    tokens,
    unlocks,
    webhooks,
    workers,
)

OPEN: Final[tuple[APIRouter, ...]] = (health.router,)
"""What anybody may ask."""

ROUTERS: Final[tuple[APIRouter, ...]] = (
    # What is asked most comes first: FastAPI tries one router after the other. Steering stands before ``runs``, since
    # ``/v1/runs/{id}:pause`` would otherwise be read as the run with the id "…:pause".
    steering.router,
    runs.router,
    events.router,
    run_results.router,
    unlocks.router,
    workers.router,
    metrics.router,
    problems.router,
    problem_sets.router,
    policies.router,
    strategies.router,
    candidates.router,
    rollouts.router,
    declarations.tournaments_router,
    declarations.campaigns_router,
    tokens.router,
    projects.router,
    audit.router,
    webhooks.router,
)
"""In the order in which paths are tried."""
