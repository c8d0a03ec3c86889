"""The metrics of this process and of the installation, for Prometheus."""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from service.dependencies import AppStateDep
from service.principal import NeedsOperator

router = APIRouter(tags=["health"])

# A thread of its own: a scrape must not wait for the requests whose waiting it is to show.
_scrapes: Final = CapacityLimiter(1)


# They name the policies of all projects.
@router.get("/metrics", response_class=PlainTextResponse, dependencies=[NeedsOperator])
async def metrics(app_state: AppStateDep) -> Response:
    """Read the metrics in Prometheus' text format; ``docs/howto/monitor.md`` says which are shared by all replicas."""
    text = await to_thread.run_sync(app_state.metrics.text, limiter=_scrapes)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
