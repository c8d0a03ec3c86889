"""Policies: the list, and one with how it answers, what it unlocked, and whether it answers now."""

from __future__ import annotations

from typing import Annotated, Final

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from service import registration
from service.dashboard.deck import Deck, DeckDep
from service.dashboard.forms import FormDep
from service.dashboard.pages import address, page
from service.dashboard.refusals import Refusal, refusal
from service.dependencies import PartsDep
from service.registration import Sign
from speciate.domain.errors import NotFoundError, SpeciateError
from speciate.ports.records.policies import PolicyVersion

router = APIRouter(include_in_schema=False, prefix="/policies")

_LIMIT: Final = 60


@router.get("")
def list_policies(request: Request, deck: DeckDep, cursor: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """Show policy versions, newest first."""
    found = deck.stores.catalog.policies(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/policies", cursor=found.next_cursor)
    cells = deck.overview.matrix([policy.id for policy in found.items])
    solved = {}
    for policy in found.items:
        own = [cell for cell in cells if cell.policy_id == policy.id and cell.mutator_id is None]
        solved[policy.id] = sum(cell.runs for cell in own), len(own), sum(1 for cell in own if cell.unlocked)
    return page(request, "policies.html", policies=found.items, solved=solved, older=older)


@router.get("/{name}")
def show_policy(request: Request, name: str, deck: DeckDep) -> Response:
    """Show a policy version: how it answers over all of its runs, and what it unlocked."""
    return _page(request, deck, _version(deck, name))


@router.post("/{name}")
async def ask_policy(
    request: Request,
    name: str,
    form: FormDep,  # noqa: ARG001 - read to see where it comes from
    deck: DeckDep,
    parts: PartsDep,
) -> Response:
    """Show the same with what its endpoint says now: only where that is asked for, since it may load an adapter."""
    version = await to_thread.run_sync(_version, deck, name)
    sign = told = None
    try:
        sign = await registration.ping(version.definition, parts)
    except SpeciateError as error:
        told = refusal(error)
    return await to_thread.run_sync(_page, request, deck, version, sign, told)


def _version(deck: Deck, name: str) -> PolicyVersion:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no policy has such a name.")
    return deck.stores.catalog.policy(name)


def _page(
    request: Request, deck: Deck, version: PolicyVersion, sign: Sign | None = None, told: Refusal | None = None
) -> Response:
    return page(
        request,
        "policy.html",
        version=version,
        policy=version.definition,
        sign=sign,
        told=told,
        figures=deck.overview.policy(version.id),
        versions=deck.stores.catalog.policies(slug=version.definition.slug, limit=20).items,
        unlocks=deck.stores.unlocks.list(policy_id=version.id, limit=60).items,
        runs=deck.stores.runs.list(policy_id=version.id, limit=12).items,
    )
