"""FastAPI dependencies: application state, authorization, and query parameters that many routes share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Final, cast
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Query, Request

from service.authentication import Authenticator
from service.metrics import ServiceMetrics
from service.ownership import OWNED, OwnershipCache
from service.principal import principal_of
from service.readiness import Readiness
from service.run_events import EventHub
from speciate.domain.access import Scope
from speciate.domain.errors import NotFoundError
from speciate.domain.problem import Problem
from speciate.messaging.seed_checks import SeedChecks
from speciate.policies.kind import ClientContext
from speciate.policies.pool import ClientPool
from speciate.schema.problems import ProblemVersion
from speciate.settings import Settings
from speciate.storage.cursors import MAX_LIMIT
from speciate.storage.stores import Stores

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PINGS: Final = 4
_MODEL_REQUESTS: Final = 64
_PROJECTS: Final = 256


@dataclass(frozen=True)
class AppState:
    settings: Settings
    stores: Stores
    hub: EventHub
    authenticator: Authenticator
    owners: OwnershipCache
    metrics: ServiceMetrics
    readiness: Readiness
    seed_checks: SeedChecks
    # Slow policy endpoints must not block other requests.
    pings: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_PINGS))
    # Requests of engines wait for a model as long, and there are many.
    model_requests: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_MODEL_REQUESTS))

    @cached_property
    def clients(self) -> ClientPool:
        return ClientPool(ClientContext.of(self.settings, self.stores.policy_keys.open))

    @cached_property
    def stores_of(self) -> Callable[[UUID], Stores]:
        """Return the stores restricted to a project; they hold no state of a request."""
        return lru_cache(maxsize=_PROJECTS)(self.stores.within)

    def add_problem(self, problem: Problem, stores: Stores, *, check: bool) -> tuple[ProblemVersion, bool]:
        """Store a problem; with ``check`` a worker scores the seed program of a new version first. Blocks."""
        note = self.seed_checks.require(problem) if check and not stores.catalog.has_problem(problem) else ""
        version, new = stores.catalog.add_problem(problem)
        return version.model_copy(update={"note": note}), new


def app_state_of(request: Request) -> AppState:
    return cast("AppState", request.app.state.app_state)


# These dependencies are asynchronous because FastAPI runs synchronous ones in a thread. They do not depend on each
# other because resolving nested dependencies would cost more than the dependencies themselves.
async def _app_state(request: Request) -> AppState:
    return app_state_of(request)


async def _stores(request: Request) -> Stores:
    return app_state_of(request).stores_of(principal_of(request).project_id)


AppStateDep = Annotated[AppState, Depends(_app_state)]
StoresDep = Annotated[Stores, Depends(_stores)]

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items in the page.")]
Cursor = Annotated[
    str | None, Query(max_length=2000, description="`next_cursor` of the previous page, unchanged. Opaque.")
]


def authorize_for(scope: Scope | None) -> Callable[[Request], Awaitable[None]]:
    """Return the check of a principal's scope, and that ids in the path belong to its project.

    Without a scope, reading requests need ``read`` and others ``submit``. Routes receive stores of one project and look
    up names and other ids in them. Ids of runs, candidates and rollouts are checked here; those of another project are
    reported as missing.

    Raises:
        ForbiddenError: The scope does not allow the request.
        NotFoundError: An id in the path does not exist in the project.
    """

    async def authorize(request: Request) -> None:
        principal = principal_of(request)
        principal.require(scope or (Scope.READ if request.method in SAFE_METHODS else Scope.SUBMIT))
        for parameter, (kind, _) in OWNED.items():
            try:
                object_id = UUID(str(request.path_params[parameter]).strip())  # as `parse_id` of the dashboard
            except (KeyError, ValueError):  # the route rejects malformed ids
                continue
            owners = app_state_of(request).owners
            project = owners.known(object_id)
            if project is None:
                project = await to_thread.run_sync(owners.find, parameter, object_id)
            if project != principal.project_id:
                raise NotFoundError(f"there is no {kind} {object_id}.")

    return authorize
