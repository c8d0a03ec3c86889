"""Routes of tournaments and campaigns: the lifecycle that they share, then the results of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from service.api.runs import IdempotencyKey
from service.api.schemas import NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import JSON_LINES, json_lines
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import VERBS, Declaration, DeclarationState
from speciate.domain.tournament import Extension, Tournament
from speciate.runs.declarations import Versions, pin_campaign, pin_extension, pin_tournament
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignRecord, DeclarationRecord, SliceRecord, TournamentRecord
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores
from speciate.tournaments.report.models import Matrix, Report, Standings

StateFilter = Annotated[DeclarationState | None, Query(description="Limit to a state.")]

D = TypeVar("D", bound=Declaration)
R = TypeVar("R", bound=DeclarationRecord[Any])

_VERB_DESCRIPTIONS: Final = {
    "pause": "Pause a {}: start no more work, and pause its active runs within about a second.",
    "resume": "Resume a paused {}.",
    "cancel": "Cancel a {} and its active runs; committed results stay.",
}


def lifecycle_router(
    declaration: type[D],
    record: type[R],
    store_of: Callable[[Stores], DeclarationStore[D, R]],
    pin: Callable[[D, Versions], D],
) -> APIRouter:
    """Return a router that creates, lists, reads, pauses, resumes and cancels declarations of one kind.

    Args:
        declaration: Type of the request body that declares one.
        record: Type of the responses.
        store_of: Selects the store.
        pin: Validates a declaration and pins its names to versions.
    """
    kind = declaration.kind
    router = APIRouter(prefix=f"/v1/{kind}s", tags=[f"{kind}s"], route_class=StrictRoute)

    def add(path: str, method: str, name: str, endpoint: Callable[..., Any], description: str, **options: Any) -> None:
        options.setdefault("response_model", record)
        router.add_api_route(path, endpoint, methods=[method], name=name, description=description, **options)

    def move(stores: Stores, name: str, goal: DeclarationState, reason: str | None) -> R:
        store = store_of(stores)
        found = store.get(name)
        store.move(found.id, goal, reason)
        return store.get(found.id)

    def pause(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> R:
        return move(stores, name, VERBS["pause"], body.reason if body else None)

    def resume(name: NameInPath, stores: StoresDep) -> R:
        return move(stores, name, VERBS["resume"], None)

    def cancel(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> R:
        return move(stores, name, VERBS["cancel"], body.reason if body else None)

    def list_(stores: StoresDep, state: StateFilter = None, limit: Limit = 100, cursor: Cursor = None) -> Page[R]:
        return store_of(stores).list(state=state, limit=limit, cursor=cursor)

    def create(body: Any, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None) -> R:
        store = store_of(stores)
        declared_id, _ = store.create(
            pin(body, stores.catalog), request_digest=body.digest, idempotency_key=idempotency_key
        )
        response.headers["Location"] = f"/v1/{kind}s/{declared_id}"
        return store.get(declared_id)

    def get(name: NameInPath, stores: StoresDep) -> R:
        return store_of(stores).get(name)

    create.__annotations__["body"] = declaration  # FastAPI reads the body's type here
    # The verbs come before the route that reads: ``{name}`` would match "…:pause".
    for verb, endpoint in (("pause", pause), ("resume", resume), ("cancel", cancel)):
        add(f"/{{name}}:{verb}", "POST", f"{verb}_{kind}", endpoint, _VERB_DESCRIPTIONS[verb].format(kind))
    add("", "GET", f"list_{kind}s", list_, f"List {kind}s, newest first.", response_model=Page[record])  # type: ignore[valid-type]
    described = f"Declare a {kind}. It starts at once and is immutable; names are pinned to versions."
    add("", "POST", f"create_{kind}", create, described, status_code=202)
    add("/{name}", "GET", f"get_{kind}", get, f"Return a {kind} with its progress.")
    return router


tournaments_router: Final = lifecycle_router(
    Tournament, TournamentRecord, lambda stores: stores.tournaments, pin_tournament
)
campaigns_router: Final = lifecycle_router(Campaign, CampaignRecord, lambda stores: stores.campaigns, pin_campaign)


@tournaments_router.post("/{name}:extend")
def extend_tournament(name: NameInPath, body: Extension, stores: StoresDep) -> TournamentRecord:
    """Add problems or seeds for all entrants; the amendment records how many runs had ended."""
    record = stores.tournaments.get(name)
    stores.tournaments.extend(record.id, pin_extension(body, record.declaration, stores.catalog))
    return stores.tournaments.get(record.id)


@tournaments_router.get("/{name}/standings")
def tournament_standings(name: NameInPath, stores: StoresDep) -> Standings:
    """Return the standings of the entrants and the verdicts of their comparisons."""
    return stores.tournaments.results.standings(stores.tournaments.get(name))


@tournaments_router.get("/{name}/matrix")
def tournament_matrix(name: NameInPath, stores: StoresDep) -> Matrix:
    """Return the successes of every entrant on every problem."""
    return stores.tournaments.results.matrix(stores.tournaments.get(name))


@tournaments_router.get("/{name}/report")
def tournament_report(name: NameInPath, stores: StoresDep) -> Report:
    """Return the full report."""
    return stores.tournaments.results.report(stores.tournaments.get(name))


@tournaments_router.get(
    "/{name}/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": "A planned run per line."}
    },
)
def export_tournament(name: NameInPath, stores: StoresDep) -> StreamingResponse:
    """Stream every planned run with its results as JSON Lines, in the order of the plan."""
    record = stores.tournaments.get(name)  # an unknown name is rejected before the response begins
    headers = {"Content-Disposition": f'attachment; filename="{record.slug}.jsonl"'}
    lines = json_lines(stores.tournaments.results.runs(record))
    return StreamingResponse(lines, media_type=JSON_LINES, headers=headers)


@campaigns_router.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List the decisions of a campaign, newest first: evaluations granted, evidence and result."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)
