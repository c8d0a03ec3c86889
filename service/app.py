"""Create the API application. Serve it with ``python -m service``."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.routing import BaseRoute

from service import errors, openapi_schema
from service.api import EVALUATOR_ROUTERS, OPEN, PROPOSER_ROUTERS, ROUTERS
from service.authentication import Authenticator
from service.commit_listener import listen_for_commits, log_listener_failure
from service.dependencies import AppState, authorize_for
from service.metrics import InstallationCollector, ServiceMetrics
from service.middleware.access_control import LOGIN_PATHS, AccessControl
from service.middleware.body_limit import BodyLimit
from service.middleware.headers import ResponseHeaders
from service.middleware.request_metrics import RequestMetrics
from service.middleware.stream_limit import StreamLimit
from service.ownership import OwnershipCache
from service.readiness import Readiness
from service.run_events import EventHub
from service.shutdown import on_stop_signal
from service.streams import StreamHub
from speciate import __version__
from speciate.domain.access import Scope
from speciate.messaging.seed_checks import SeedChecks
from speciate.settings import Settings, check_exposure
from speciate.storage.stores import Stores, open_stores

THREADS: Final = 14
"""Threads for requests. With those of streams and live views, they stay within the database connections."""

_CLOSE_S: Final = 5.0
"""Seconds within which streams and the commit listener end; otherwise the process ends without them."""

Listen = Callable[[Callable[[UUID], None]], Coroutine[Any, Any, None]]
"""Calls a function in the event loop with the id of every run that commits, until it is cancelled."""


def create_app(
    settings: Settings, *, stores: Stores | None = None, listen: Listen | None = None, pages: bool = True
) -> FastAPI:
    """Return the application. It connects to the servers on startup, or uses given stores and commits.

    Without ``pages`` it is the REST API alone, which a process imports in three quarters of the time.
    """
    check_exposure(settings)
    metrics = ServiceMetrics()
    app = FastAPI(
        title="Speciate",
        version=__version__,
        summary="Evolutionary search with language models on vector rewards, and a record of what each policy unlocks.",
        lifespan=partial(_lifespan, settings, metrics, stores, listen, pages),
        # FastAPI's documentation pages load scripts from another origin.
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        separate_input_output_schemas=False,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        routes=_routes(pages),
    )
    errors.install(app, with_redis=stores is None)
    # The middleware added last runs first.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, open_paths=LOGIN_PATHS)
    app.add_middleware(StreamLimit)
    app.add_middleware(AccessControl, token=_text(settings.token), metrics_token=_text(settings.metrics_token))
    if pages:
        from service.dashboard.error_pages import ErrorPages

        app.add_middleware(ErrorPages)
    app.state.draining = threading.Event()
    app.add_middleware(ResponseHeaders)
    app.add_middleware(RequestMetrics, metrics=metrics)
    app.openapi = partial(openapi_schema.openapi_document, app)  # type: ignore[method-assign]
    return app


@cache
def _routes(pages: bool) -> list[BaseRoute]:
    """Return all routes. FastAPI analyses them when the first request arrives, which takes as long as 100 requests."""
    open_to_all, reading, proposing = [*OPEN], [*ROUTERS], [*PROPOSER_ROUTERS]
    if pages:
        from service.dashboard import routes

        open_to_all += routes.OPEN
        reading += routes.PAGES
        proposing += routes.PROPOSER_PAGES
    root = APIRouter(generate_unique_id_function=_operation_id)
    for router in open_to_all:
        root.include_router(router)
    for router in reading:
        root.include_router(router, dependencies=[Depends(authorize_for(None))])
    for router in proposing:
        root.include_router(router, dependencies=[Depends(authorize_for(Scope.PROPOSE))])
    for router in EVALUATOR_ROUTERS:
        root.include_router(router, dependencies=[Depends(authorize_for(Scope.EVALUATE))])
    return root.routes


def _operation_id(route: APIRoute) -> str:
    return route.name


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


@asynccontextmanager
async def _lifespan(
    settings: Settings, metrics: ServiceMetrics, opened: Stores | None, listen: Listen | None, pages: bool, app: FastAPI
) -> AsyncIterator[None]:
    stores = opened or open_stores(settings, statement_s=settings.statement_s)
    listen = listen or partial(listen_for_commits, _text(settings.redis_url) or "")
    hub = EventHub(stores)
    authenticator = Authenticator.of(settings, stores)
    seed_checks = SeedChecks(stores.redis, stores.celery)
    app.state.app_state = AppState(
        settings, stores, hub, authenticator, OwnershipCache(stores.engine), metrics, Readiness(stores), seed_checks
    )
    hubs: list[StreamHub] = [hub]
    if pages:
        from service.dashboard.context import DashboardContext
        from service.dashboard.pages import warm

        app.state.dashboard = dashboard = DashboardContext.from_stores(stores)
        hubs.append(dashboard.live)
        if opened is None:  # a process that also executes runs compiles only the templates that somebody looks at
            asyncio.get_running_loop().run_in_executor(None, warm)

    def wake(run_id: UUID) -> None:
        for each in hubs:
            each.wake(run_id)

    def close_streams() -> None:
        for each in hubs:
            each.close_streams()

    installation = InstallationCollector(
        stores,
        _text(settings.database_url) or "",
        stall_s=settings.stall_s,
        statement_s=settings.statement_s,
        streams=lambda: sum(each.streams for each in hubs),
    )
    metrics.watch(installation)
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    listener = asyncio.create_task(listen(wake), name="commits")
    listener.add_done_callback(log_listener_failure)
    rest = asyncio.create_task(_close_unused(stores, settings.rest_s), name="rest")
    try:
        with on_stop_signal(app.state.draining.set, close_streams, settings.shutdown_delay_s):
            yield
    finally:
        listener.cancel()
        rest.cancel()
        await asyncio.wait([listener, rest, *(asyncio.create_task(each.close()) for each in hubs)], timeout=_CLOSE_S)
        authenticator.close()
        app.state.app_state.clients.close()
        metrics.forget(installation)
        stores.close()


async def _close_unused(stores: Stores, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(stores.close_unused)
