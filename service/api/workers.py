"""Who is at work, and on what."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.schemas import WorkersAnswer
from service.dependencies import Limit, StoresDep
from service.responses import serialize_in_thread
from speciate.messaging.presence import present_workers

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get("")
@serialize_in_thread
def list_workers(stores: StoresDep, limit: Limit = 100) -> WorkersAnswer:
    """List the worker processes that are there, and at most ``limit`` units of work that are leased or wait."""
    return WorkersAnswer(items=present_workers(stores.redis), work=stores.runs.work_in_flight(limit=limit))
