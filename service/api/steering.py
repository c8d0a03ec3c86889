"""Pausing, resuming and cancelling runs."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.etags import IfMatch, etag, matching
from service.api.schemas import RunId, SteeringRequest
from service.dependencies import StoresDep
from service.strict_json import StrictRoute
from speciate.ports.records.runs import RunRecord
from speciate.runs.steer import cancel_run, pause_run, resume_run

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)


@router.post("/{run_id}:pause")
def pause(
    run_id: RunId,
    stores: StoresDep,
    response: Response,
    body: SteeringRequest | None = None,
    if_match: IfMatch = None,
) -> RunRecord:
    """Stop handing out a run's work; what is in flight is still booked."""
    stores.runs.get(run_id)  # of this project
    pause_run(matching(if_match, stores.runs), stores.signals, run_id, body.reason if body else None)
    return _now(run_id, stores, response)


@router.post("/{run_id}:resume")
def resume(run_id: RunId, stores: StoresDep, response: Response, if_match: IfMatch = None) -> RunRecord:
    """Hand out a paused run's work again."""
    stores.runs.get(run_id)  # of this project
    resume_run(matching(if_match, stores.runs), stores.signals, run_id)
    return _now(run_id, stores, response)


@router.post("/{run_id}:cancel")
def cancel(
    run_id: RunId,
    stores: StoresDep,
    response: Response,
    body: SteeringRequest | None = None,
    if_match: IfMatch = None,
) -> RunRecord:
    """End a run; what is in flight is thrown away, what was committed stays."""
    stores.runs.get(run_id)  # of this project
    cancel_run(matching(if_match, stores.runs), stores.signals, run_id, body.reason if body else None)
    return _now(run_id, stores, response)


def _now(run_id: RunId, stores: StoresDep, response: Response) -> RunRecord:
    run = stores.runs.get(run_id)
    response.headers["ETag"] = etag(run)
    return run
