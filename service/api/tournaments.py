"""Routes of tournaments: declare, list, read, extend and steer them, and their results."""

from io import BytesIO
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from service.api.declarations import add_declaration_routes
from service.api.schemas import IdempotencyKey, NameInPath
from service.dependencies import StoresDep
from service.responses import attached_json_lines, attachment, json_lines_response
from service.strict_json import StrictRoute
from speciate.domain.tournament import Extension, Tournament
from speciate.runs.declarations import pin_extension, pin_tournament
from speciate.schema.declarations import TournamentRecord
from speciate.tournaments.report.models import Matrix, Report, Standings

_ZIP: Final = "application/zip"

router = APIRouter(prefix="/v1/tournaments", tags=["tournaments"], route_class=StrictRoute)


add_declaration_routes(router, TournamentRecord, lambda stores: stores.tournaments, "tournament")


@router.post("", status_code=202)
def create_tournament(
    body: Tournament, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> TournamentRecord:
    """Declare a tournament. It starts at once and is immutable; names are pinned to versions."""
    if (declared_id := stores.tournaments.earlier(idempotency_key, body.digest)) is None:
        pinned = pin_tournament(body, stores.catalog)
        declared_id, _ = stores.tournaments.create(pinned, request_digest=body.digest, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/v1/tournaments/{declared_id}"
    return stores.tournaments.get(declared_id)


@router.post("/{name}:extend")
def extend_tournament(name: NameInPath, body: Extension, stores: StoresDep) -> TournamentRecord:
    """Add problems or seeds for all entrants; the amendment records how many runs had ended."""
    record = stores.tournaments.get(name)
    stores.tournaments.extend(record.id, pin_extension(body, record.declaration, stores.catalog))
    return stores.tournaments.get(record.id)


@router.get("/{name}/standings")
def tournament_standings(name: NameInPath, stores: StoresDep) -> Standings:
    """Return the standings of the entrants and the verdicts of their comparisons."""
    return stores.tournaments.results.standings(stores.tournaments.get(name))


@router.get("/{name}/matrix")
def tournament_matrix(name: NameInPath, stores: StoresDep) -> Matrix:
    """Return the successes of every entrant on every problem."""
    return stores.tournaments.results.matrix(stores.tournaments.get(name))


@router.get("/{name}/report")
def tournament_report(name: NameInPath, stores: StoresDep) -> Report:
    """Return the full report."""
    return stores.tournaments.results.report(stores.tournaments.get(name))


@router.get(
    "/{name}/export", response_class=StreamingResponse, responses=json_lines_response("A planned run per line.")
)
def export_tournament(name: NameInPath, stores: StoresDep) -> StreamingResponse:
    """Stream every planned run with its results as JSON Lines, in the order of the plan."""
    record = stores.tournaments.get(name)  # an unknown name is rejected before the response begins
    return attached_json_lines(record.slug, stores.tournaments.results.runs(record))


@router.get(
    "/{name}/bundle",
    response_class=Response,
    responses={200: {"content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}}}},
)
def tournament_bundle(name: NameInPath, stores: StoresDep) -> Response:
    """Return an ended tournament as one signed ZIP archive, which `speciate tournaments verify` checks."""
    record, file = stores.tournaments.get(name), BytesIO()
    stores.tournaments.results.write_bundle(record, file, stores.secrets.sealer.signing_key())
    return Response(file.getvalue(), media_type=_ZIP, headers=attachment(f"{record.slug}.zip"))
