"""Whether this process lives, and whether it can work."""

from __future__ import annotations

from collections.abc import Callable

import redis
from fastapi import APIRouter
from sqlalchemy.exc import DBAPIError

from service.api.schemas import HealthAnswer, ReadyAnswer
from service.dependencies import PartsDep
from speciate import __version__
from speciate.domain.errors import ConfigurationError, UnavailableError
from speciate.storage.database import check_version
from speciate.storage.migrate import is_current
from speciate.storage.plane import Plane

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> HealthAnswer:
    """Say that the process is alive; nothing behind it is asked."""
    return HealthAnswer(version=__version__)


@router.get("/readyz")
def readyz(parts: PartsDep) -> ReadyAnswer:
    """Say that PostgreSQL and Redis answer and the schema is up to date; 503 names what does not."""
    found: dict[str, str] = {}
    missing: list[str] = []
    checks: dict[str, Callable[[Plane], str]] = {"postgresql": _postgresql, "redis": _redis}
    for name, check in checks.items():
        try:
            found[name] = check(parts.plane)
        except (UnavailableError, ConfigurationError) as error:
            missing.append(str(error))
    if missing:
        raise UnavailableError(" ".join(missing))
    return ReadyAnswer(version=__version__, **found)


def _postgresql(plane: Plane) -> str:
    try:
        version = check_version(plane.engine)
        current = is_current(plane.engine)
    except DBAPIError as error:
        # The server may go away between two questions.
        raise UnavailableError(f"PostgreSQL does not answer: {type(error.orig).__name__}.") from error
    if not current:
        raise UnavailableError("the schema of the database is not up to date.", remedy="Run `speciate migrate`.")
    return version


def _redis(plane: Plane) -> str:
    try:
        plane.redis.ping()
    except redis.RedisError as error:
        raise UnavailableError(f"Redis does not answer: {error}.") from error
    return "ok"
