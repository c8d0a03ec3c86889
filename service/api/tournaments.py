"""Tournaments: declaring, steering and reading head-to-head comparisons."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from service.api.runs import IdempotencyKey
from service.api.schemas import NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, PlaneDep
from service.streaming import JSON_LINES, json_lines
from service.strict_json import StrictRoute
from speciate.domain.tournament import Extension, Tournament, TournamentState
from speciate.ports.records.base import Page
from speciate.ports.records.tournaments import TournamentRecord
from speciate.runs.tournaments import pin, pin_extension
from speciate.tournaments.report import Matrix, Report, Standings

router = APIRouter(prefix="/v1/tournaments", tags=["tournaments"], route_class=StrictRoute)


# Before the routes that read: ``{name}`` would otherwise take "…:pause" for a name.
@router.post("/{name}:pause")
def pause_tournament(name: NameInPath, plane: PlaneDep, body: SteeringRequest | None = None) -> TournamentRecord:
    """Start no more runs, and pause those under way within a second or so."""
    return _move(plane, name, TournamentState.PAUSED, body)


@router.post("/{name}:resume")
def resume_tournament(name: NameInPath, plane: PlaneDep) -> TournamentRecord:
    """Go on."""
    return _move(plane, name, TournamentState.RUNNING, None)


@router.post("/{name}:cancel")
def cancel_tournament(name: NameInPath, plane: PlaneDep, body: SteeringRequest | None = None) -> TournamentRecord:
    """End it; runs under way are cancelled, what has ended stays."""
    return _move(plane, name, TournamentState.CANCELLED, body)


@router.post("/{name}:extend")
def extend_tournament(name: NameInPath, body: Extension, plane: PlaneDep) -> TournamentRecord:
    """Add problems or seeds for all entrants; recorded as an amendment, with how many runs had ended."""
    record = plane.tournaments.get(name)
    plane.tournaments.extend(record.id, pin_extension(body, record.declaration, plane.catalog))
    return plane.tournaments.get(record.id)


@router.get("")
def list_tournaments(
    plane: PlaneDep, state: TournamentState | None = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[TournamentRecord]:
    """List tournaments, newest first."""
    return plane.tournaments.list(state=state, limit=limit, cursor=cursor)


@router.post("", status_code=202)
def create_tournament(
    body: Tournament, plane: PlaneDep, response: Response, idempotency_key: IdempotencyKey = None
) -> TournamentRecord:
    """Declare a tournament; it begins at once and can never be declared otherwise. Names are pinned to versions."""
    tournament_id, _ = plane.tournaments.create(
        pin(body, plane.catalog), request_digest=body.digest, idempotency_key=idempotency_key
    )
    record = plane.tournaments.get(tournament_id)
    response.headers["Location"] = f"/v1/tournaments/{tournament_id}"
    return record


@router.get("/{name}")
def get_tournament(name: NameInPath, plane: PlaneDep) -> TournamentRecord:
    """Read a tournament with its progress."""
    return plane.tournaments.get(name)


@router.get("/{name}/standings")
def tournament_standings(name: NameInPath, plane: PlaneDep) -> Standings:
    """Who stands where, and which differences are known to be real."""
    return plane.tournaments.standings(plane.tournaments.get(name))


@router.get("/{name}/matrix")
def tournament_matrix(name: NameInPath, plane: PlaneDep) -> Matrix:
    """Successes of every entrant on every problem."""
    return plane.tournaments.matrix(plane.tournaments.get(name))


@router.get("/{name}/report")
def tournament_report(name: NameInPath, plane: PlaneDep) -> Report:
    """The whole report."""
    return plane.tournaments.report(plane.tournaments.get(name))


@router.get(
    "/{name}/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": "One planned run a line."}
    },
)
def export_tournament(name: NameInPath, plane: PlaneDep) -> StreamingResponse:
    """Stream every planned run with what it says as JSON Lines, in the order of the plan."""
    record = plane.tournaments.get(name)  # an unknown one is refused before the answer begins
    headers = {"Content-Disposition": f'attachment; filename="{record.slug}.jsonl"'}
    return StreamingResponse(json_lines(plane.tournaments.runs(record)), media_type=JSON_LINES, headers=headers)


def _move(plane: PlaneDep, name: str, goal: TournamentState, body: SteeringRequest | None) -> TournamentRecord:
    record = plane.tournaments.get(name)
    plane.tournaments.move(record.id, goal, body.reason if body else None)
    return plane.tournaments.get(record.id)
