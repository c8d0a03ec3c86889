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
    new_campaign,
    new_policy,
    new_run,
    new_tournament,
    policies,
    problems,
    propose,
    run,
    runs,
    session,
    tournaments,
    unlocks,
    visibility,
    workers,
)

OPEN: Final[tuple[APIRouter, ...]] = (assets.router, session.router)
"""Routers that need no login; their forms check the origin themselves."""

PAGES: Final[tuple[APIRouter, ...]] = (
    activity.router,
    runs.router,
    # The form of a resource comes before its pages, whose path would match "new" as a name.
    new_run.router,
    run.router,
    propose.router,
    candidates.router,
    lineage.router,
    events.router,
    compare.router,
    problems.router,
    new_policy.router,
    policies.router,
    unlocks.router,
    new_tournament.router,
    tournaments.router,
    new_campaign.router,
    campaigns.router,
    workers.router,
    access.router,
    visibility.router,
    docs.router,
)
"""In the order in which paths are matched."""

PROPOSER_PAGES: Final[tuple[APIRouter, ...]] = (propose.actions,)
"""Routers that require scope ``propose``."""
