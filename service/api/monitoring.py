"""Routes for monitoring: health, readiness, Prometheus metrics and workers."""

from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from service.api.schemas import HealthResponse, ReadinessResponse, SigningKeyResponse, WorkersPage
from service.dependencies import AppStateDep, Limit, StoresDep
from service.principal import NeedsOperator
from speciate import __version__
from speciate.domain.errors import UnavailableError
from speciate.messaging.presence import present_workers

probes = APIRouter(tags=["monitoring"])
"""Routes without authentication."""

router = APIRouter(tags=["monitoring"])

# A thread of its own, so that a scrape does not wait behind the requests whose latency it reports.
_scrapes: Final = CapacityLimiter(1)


@probes.get("/healthz")
async def healthz() -> HealthResponse:
    """Return 200 if the process is alive. Contacts no other server."""
    return HealthResponse(version=__version__)


@probes.get("/readyz")
async def readyz(request: Request, app_state: AppStateDep) -> ReadinessResponse:
    """Return 200 and the state of Redis if PostgreSQL responds and its schema is current, else 503 with the reason."""
    if request.app.state.draining.is_set():
        raise UnavailableError("this process is shutting down.", remedy="Use another replica.")
    return ReadinessResponse(version=__version__, **await app_state.readiness.check())


# Only for the operator: metric labels name the policies of all projects.
@router.get("/metrics", response_class=PlainTextResponse, dependencies=[NeedsOperator])
async def metrics(app_state: AppStateDep) -> Response:
    """Return the metrics in the Prometheus text format. `docs/howto/monitor.md` describes them."""
    return Response(await to_thread.run_sync(app_state.metrics.text, limiter=_scrapes), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/signing-key")
def signing_key(stores: StoresDep) -> SigningKeyResponse:
    """Return the public key of the signatures of this service, such as those of bundles of tournaments."""
    return SigningKeyResponse(public_key=stores.secrets.sealer.signing_key().public_key().public_bytes_raw().hex())


@router.get("/v1/workers")
def list_workers(stores: StoresDep, limit: Limit = 100) -> WorkersPage:
    """List the live worker processes and at most `limit` leased or waiting work units."""
    return WorkersPage(items=present_workers(stores.redis), work=stores.runs.work_in_flight(limit=limit))
