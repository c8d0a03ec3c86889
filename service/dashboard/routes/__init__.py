"""Routers of the pages: one module per page."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from service.dashboard import assets
from service.dashboard.routes import (
    access,
    activity,
    campaigns,
    candidates,
    compare,
    docs,
    events,
    lineage,
    policies,
    problems,
    propose,
    run,
    runs,
    session,
    tournaments,
    unlocks,
    visibility,
)

OPEN: Final[tuple[APIRouter, ...]] = (assets.router, session.router)
"""Routers that need no login; their forms check the origin themselves."""

PAGES: Final[tuple[APIRouter, ...]] = (
    activity.router,
    # Before the page of a run, whose path would match "new" as an id.
    runs.router,
    run.router,
    propose.router,
    candidates.router,
    lineage.router,
    events.router,
    compare.router,
    problems.router,
    policies.router,
    unlocks.router,
    tournaments.router,
    campaigns.router,
    access.router,
    visibility.router,
    docs.router,
)
"""In the order in which paths are matched."""

PROPOSER_PAGES: Final[tuple[APIRouter, ...]] = (propose.actions,)
"""Routers that require scope ``propose``."""
