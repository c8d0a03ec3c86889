"""Whether this process lives, and whether it can work."""

from __future__ import annotations

from collections.abc import Callable

import redis
from fastapi import APIRouter, Request
from sqlalchemy.exc import DBAPIError

from service.api.schemas import HealthAnswer, ReadyAnswer
from service.dependencies import AppStateDep
from speciate import __version__
from speciate.domain.errors import ConfigurationError, UnavailableError
from speciate.storage.database import check_version
from speciate.storage.migrate import current
from speciate.storage.revision import SchemaState, schema_state
from speciate.storage.stores import Stores

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> HealthAnswer:
    """Say that the process is alive; nothing behind it is asked."""
    return HealthAnswer(version=__version__)


@router.get("/readyz")
def readyz(request: Request, app_state: AppStateDep) -> ReadyAnswer:
    """Say that PostgreSQL and Redis answer and the schema is up to date; 503 names what does not."""
    if request.app.state.draining.is_set():
        raise UnavailableError("this process is stopping.", remedy="Ask another replica.")
    found: dict[str, str] = {}
    missing: list[str] = []
    checks: dict[str, Callable[[Stores], str]] = {"postgresql": _postgresql, "redis": _redis}
    for name, check in checks.items():
        try:
            found[name] = check(app_state.stores)
        except (UnavailableError, ConfigurationError) as error:
            missing.append(str(error))
    if missing:
        raise UnavailableError(" ".join(missing))
    return ReadyAnswer(version=__version__, **found)


def _postgresql(stores: Stores) -> str:
    try:
        version = check_version(stores.engine)
        state = schema_state(current(stores.engine))
    except DBAPIError as error:
        # The server may go away between two questions.
        raise UnavailableError(f"PostgreSQL does not respond: {type(error.orig).__name__}.") from error
    # A newer schema has everything that this process needs: replicas stay ready while others are being upgraded.
    if state in {SchemaState.OLDER, SchemaState.UNKNOWN}:
        raise UnavailableError("the schema of the database is not up to date.", remedy="Run `speciate migrate`.")
    return version


def _redis(stores: Stores) -> str:
    try:
        stores.redis.ping()
    except redis.RedisError as error:
        raise UnavailableError(f"Redis does not answer: {error}.") from error
    return "ok"
