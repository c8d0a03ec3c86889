"""The pages, one small file for each thing that is looked at."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from service.dashboard import assets
from service.dashboard.routes import (
    activity,
    campaigns,
    candidates,
    compare,
    events,
    lineage,
    new_run,
    new_tournament,
    policies,
    problems,
    run,
    run_actions,
    runs,
    theme,
    tournaments,
    unlocks,
    workers,
)

PAGES: Final[tuple[APIRouter, ...]] = (
    assets.router,
    activity.router,
    runs.router,
    # Before ``run``, which would take "new" for the id of one.
    new_run.router,
    run.router,
    run_actions.router,
    candidates.router,
    lineage.router,
    events.router,
    compare.router,
    problems.router,
    policies.router,
    unlocks.router,
    new_tournament.router,
    tournaments.router,
    campaigns.router,
    workers.router,
    theme.router,
)
"""In the order in which paths are tried."""
