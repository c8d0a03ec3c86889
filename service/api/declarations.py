"""Routes of tournaments and campaigns: declare, list, read, extend and steer them, and their results."""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, cast

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from service.api.schemas import DeclarationStateFilter, IdempotencyKey, NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import attached_json_lines, attachment, json_lines_response
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import Declaration, DeclarationState
from speciate.domain.tournament import Extension, Tournament
from speciate.runs.declarations import pin_campaign, pin_extension, pin_tournament
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignRecord, DeclarationRecord, SliceRecord, TournamentRecord
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores
from speciate.tournaments.report.models import Matrix, Report, Standings

_ZIP: Final = "application/zip"

tournaments = APIRouter(prefix="/v1/tournaments", tags=["tournaments"], route_class=StrictRoute)
campaigns = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)


def _add_common_routes(
    router: APIRouter,
    noun: str,
    declaration: type[Declaration],
    record: type[DeclarationRecord[Any]],
    store_of: Callable[[Stores], DeclarationStore[Any, Any]],
    pin: Callable[..., Declaration],
) -> None:
    def move(stores: Stores, name: str, goal: DeclarationState, body: SteeringRequest | None = None) -> Any:
        store = store_of(stores)
        declared_id = store.get(name).id
        store.move(declared_id, goal, body.reason if body else None)
        return store.get(declared_id)

    def pause(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> Any:
        return move(stores, name, DeclarationState.PAUSED, body)

    def resume(name: NameInPath, stores: StoresDep) -> Any:
        return move(stores, name, DeclarationState.RUNNING)

    def cancel(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> Any:
        return move(stores, name, DeclarationState.CANCELLED, body)

    def create(
        body: declaration,  # type: ignore[valid-type]
        stores: StoresDep,
        response: Response,
        idempotency_key: IdempotencyKey = None,
    ) -> Any:
        store, declared = store_of(stores), cast("Declaration", body)
        pinned = pin(declared, stores.catalog)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=idempotency_key)
        response.headers["Location"] = f"{router.prefix}/{declared_id}"
        return store.get(declared_id)

    def list_(
        stores: StoresDep, state: DeclarationStateFilter = None, limit: Limit = 100, cursor: Cursor = None
    ) -> Any:
        return store_of(stores).list(state=state, limit=limit, cursor=cursor)

    def get(name: NameInPath, stores: StoresDep) -> Any:
        return store_of(stores).get(name)

    created = f"Declare a {noun}. It starts at once and is immutable; names are pinned to versions."
    paused = f"Pause a {noun}: start no more work, and pause its active runs within about a second."
    cancelled = f"Cancel a {noun} and its active runs; committed results stay."
    page: Any = Page[record]  # type: ignore[valid-type]
    router.post("/{name}:pause", response_model=record, name=f"pause_{noun}", description=paused)(pause)
    router.post("/{name}:resume", response_model=record, name=f"resume_{noun}", description=f"Resume a paused {noun}.")(
        resume
    )
    router.post("/{name}:cancel", response_model=record, name=f"cancel_{noun}", description=cancelled)(cancel)
    router.get("", response_model=page, name=f"list_{noun}s", description=f"List {noun}s, newest first.")(list_)
    router.get("/{name}", response_model=record, name=f"get_{noun}", description=f"Return a {noun} with its progress.")(
        get
    )
    router.post("", status_code=202, response_model=record, name=f"create_{noun}", description=created)(create)


_add_common_routes(
    tournaments, "tournament", Tournament, TournamentRecord, lambda stores: stores.tournaments, pin_tournament
)
_add_common_routes(campaigns, "campaign", Campaign, CampaignRecord, lambda stores: stores.campaigns, pin_campaign)


@tournaments.post("/{name}:extend")
def extend_tournament(name: NameInPath, body: Extension, stores: StoresDep) -> TournamentRecord:
    """Add problems or seeds for all entrants; the amendment records how many runs had ended."""
    record = stores.tournaments.get(name)
    stores.tournaments.extend(record.id, pin_extension(body, record.declaration, stores.catalog))
    return stores.tournaments.get(record.id)


@tournaments.get("/{name}/standings")
def tournament_standings(name: NameInPath, stores: StoresDep) -> Standings:
    """Return the standings of the entrants and the verdicts of their comparisons."""
    return stores.tournaments.results.standings(stores.tournaments.get(name))


@tournaments.get("/{name}/matrix")
def tournament_matrix(name: NameInPath, stores: StoresDep) -> Matrix:
    """Return the successes of every entrant on every problem."""
    return stores.tournaments.results.matrix(stores.tournaments.get(name))


@tournaments.get("/{name}/report")
def tournament_report(name: NameInPath, stores: StoresDep) -> Report:
    """Return the full report."""
    return stores.tournaments.results.report(stores.tournaments.get(name))


@tournaments.get(
    "/{name}/export", response_class=StreamingResponse, responses=json_lines_response("A planned run per line.")
)
def export_tournament(name: NameInPath, stores: StoresDep) -> StreamingResponse:
    """Stream every planned run with its results as JSON Lines, in the order of the plan."""
    record = stores.tournaments.get(name)  # an unknown name is rejected before the response begins
    return attached_json_lines(record.slug, stores.tournaments.results.runs(record))


@tournaments.get(
    "/{name}/bundle",
    response_class=Response,
    responses={200: {"content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}}}},
)
def tournament_bundle(name: NameInPath, stores: StoresDep) -> Response:
    """Return an ended tournament as one signed ZIP archive, which `speciate tournaments verify` checks."""
    record, file = stores.tournaments.get(name), BytesIO()
    stores.tournaments.results.write_bundle(record, file, stores.secrets.sealer.signing_key())
    return Response(file.getvalue(), media_type=_ZIP, headers=attachment(f"{record.slug}.zip"))


@campaigns.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List the decisions of a campaign, newest first: evaluations granted, evidence and result."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)
