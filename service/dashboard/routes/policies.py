"""Policies: the list, and one with how it answers and what it unlocked."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.deck import DeckDep
from service.dashboard.pages import address, page
from speciate.domain.errors import NotFoundError

router = APIRouter(include_in_schema=False, prefix="/policies")

_LIMIT: Final = 60


@router.get("")
def list_policies(request: Request, deck: DeckDep, cursor: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """Show policy versions, newest first."""
    found = deck.plane.catalog.policies(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/policies", cursor=found.next_cursor)
    cells = deck.overview.matrix([policy.id for policy in found.items])
    solved = {
        policy.id: (
            sum(cell.runs for cell in cells if cell.policy_id == policy.id),
            sum(1 for cell in cells if cell.policy_id == policy.id),
            sum(1 for cell in cells if cell.policy_id == policy.id and cell.unlocked),
        )
        for policy in found.items
    }
    return page(request, "policies.html", policies=found.items, solved=solved, older=older)


@router.get("/{name}")
def show_policy(request: Request, name: str, deck: DeckDep) -> Response:
    """Show a policy version: how it answers over all of its runs, and what it unlocked."""
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no policy has such a name.")
    catalog = deck.plane.catalog
    version = catalog.policy(name)
    return page(
        request,
        "policy.html",
        version=version,
        policy=version.definition,
        figures=deck.overview.policy(version.id),
        versions=catalog.policies(slug=version.definition.slug, limit=20).items,
        unlocks=deck.plane.unlocks.list(policy_id=version.id, limit=60).items,
        runs=deck.plane.runs.list(policy_id=version.id, limit=12).items,
    )
