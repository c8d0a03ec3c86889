"""The metrics of this process and of the installation, for Prometheus."""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from service.dependencies import PartsDep
from service.principal import PrincipalDep
from speciate.domain.access import DEFAULT_PROJECT
from speciate.domain.errors import ForbiddenError

router = APIRouter(tags=["health"])

# A thread of its own: a scrape must not wait for the requests whose waiting it is to show.
_scrapes: Final = CapacityLimiter(1)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: PartsDep, principal: PrincipalDep) -> Response:
    """Read the metrics in Prometheus' text format; ``docs/observability.md`` says which are shared by all replicas.

    They are of the whole installation: its operator reads them, and every token of the project ``default``.
    """
    if not principal.all_projects and principal.project != DEFAULT_PROJECT:
        raise ForbiddenError(
            "metrics are of the whole installation.", remedy=f"Use a token of the project {DEFAULT_PROJECT!r}."
        )
    text = await to_thread.run_sync(parts.meter.text, limiter=_scrapes)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
