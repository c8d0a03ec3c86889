"""Tournaments: declaring, steering and reading head-to-head comparisons."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from service.api.runs import IdempotencyKey
from service.api.schemas import NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import JSON_LINES, json_lines
from service.strict_json import StrictRoute
from speciate.domain.declaration import DeclarationState
from speciate.domain.tournament import Extension, Tournament
from speciate.policies import can_advise
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import TournamentRecord
from speciate.runs.declarations import pin_extension, pin_tournament
from speciate.tournaments.report.models import Matrix, Report, Standings

router = APIRouter(prefix="/v1/tournaments", tags=["tournaments"], route_class=StrictRoute)


# Before the routes that read: ``{name}`` would otherwise take "…:pause" for a name.
@router.post("/{name}:pause")
def pause_tournament(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> TournamentRecord:
    """Start no more runs, and pause those under way within a second or so."""
    return _move(stores, name, DeclarationState.PAUSED, body)


@router.post("/{name}:resume")
def resume_tournament(name: NameInPath, stores: StoresDep) -> TournamentRecord:
    """Go on."""
    return _move(stores, name, DeclarationState.RUNNING, None)


@router.post("/{name}:cancel")
def cancel_tournament(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> TournamentRecord:
    """End it; runs under way are cancelled, what has ended stays."""
    return _move(stores, name, DeclarationState.CANCELLED, body)


@router.post("/{name}:extend")
def extend_tournament(name: NameInPath, body: Extension, stores: StoresDep) -> TournamentRecord:
    """Add problems or seeds for all entrants; recorded as an amendment, with how many runs had ended."""
    record = stores.tournaments.get(name)
    stores.tournaments.extend(record.id, pin_extension(body, record.declaration, stores.catalog, can_advise))
    return stores.tournaments.get(record.id)


@router.get("")
def list_tournaments(
    stores: StoresDep, state: DeclarationState | None = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[TournamentRecord]:
    """List tournaments, newest first."""
    return stores.tournaments.list(state=state, limit=limit, cursor=cursor)


@router.post("", status_code=202)
def create_tournament(
    body: Tournament, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> TournamentRecord:
    """Declare a tournament; it begins at once and can never be declared otherwise. Names are pinned to versions."""
    tournament_id, _ = stores.tournaments.create(
        pin_tournament(body, stores.catalog, can_advise), request_digest=body.digest, idempotency_key=idempotency_key
    )
    record = stores.tournaments.get(tournament_id)
    response.headers["Location"] = f"/v1/tournaments/{tournament_id}"
    return record


@router.get("/{name}")
def get_tournament(name: NameInPath, stores: StoresDep) -> TournamentRecord:
    """Read a tournament with its progress."""
    return stores.tournaments.get(name)


@router.get("/{name}/standings")
def tournament_standings(name: NameInPath, stores: StoresDep) -> Standings:
    """Who stands where, and which differences are known to be real."""
    return stores.tournaments.results.standings(stores.tournaments.get(name))


@router.get("/{name}/matrix")
def tournament_matrix(name: NameInPath, stores: StoresDep) -> Matrix:
    """Successes of every entrant on every problem."""
    return stores.tournaments.results.matrix(stores.tournaments.get(name))


@router.get("/{name}/report")
def tournament_report(name: NameInPath, stores: StoresDep) -> Report:
    """The whole report."""
    return stores.tournaments.results.report(stores.tournaments.get(name))


@router.get(
    "/{name}/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": "One planned run a line."}
    },
)
def export_tournament(name: NameInPath, stores: StoresDep) -> StreamingResponse:
    """Stream every planned run with what it says as JSON Lines, in the order of the plan."""
    record = stores.tournaments.get(name)  # an unknown one is refused before the answer begins
    headers = {"Content-Disposition": f'attachment; filename="{record.slug}.jsonl"'}
    return StreamingResponse(
        json_lines(stores.tournaments.results.runs(record)), media_type=JSON_LINES, headers=headers
    )


def _move(stores: StoresDep, name: str, goal: DeclarationState, body: SteeringRequest | None) -> TournamentRecord:
    record = stores.tournaments.get(name)
    stores.tournaments.move(record.id, goal, body.reason if body else None)
    return stores.tournaments.get(record.id)
