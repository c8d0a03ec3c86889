"""Routers of the pages: one module per page."""

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

# The list of runs comes before the page of a run, whose path would match "new" as an id.
_RUNS: Final = (runs, run, propose, candidates, lineage, compare)
_OTHERS: Final = (problems, policies, unlocks, tournaments, campaigns, access, visibility, docs)
PAGES: Final[tuple[APIRouter, ...]] = tuple(each.router for each in (activity, *_RUNS, *_OTHERS))
"""In the order in which paths are matched."""

PROPOSER_PAGES: Final[tuple[APIRouter, ...]] = (propose.actions,)
"""Routers that require scope ``propose``."""
