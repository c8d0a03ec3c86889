"""Check the servers behind the API for probes, in one thread however many probes wait."""

import asyncio
import time

from anyio import CapacityLimiter, to_thread
from sqlalchemy.exc import DBAPIError

from speciate.domain.errors import ConfigurationError, UnavailableError
from speciate.messaging.client_library import redis
from speciate.storage.database import check_version
from speciate.storage.migrate import check_schema, current_revision
from speciate.storage.stores import Stores


class Readiness:
    """Check PostgreSQL, its schema and Redis.

    Probes share a check that began after they arrived. A server that does not answer holds a check for seconds, and
    anyone may probe: a thread for each probe would leave none for other requests.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._lock = asyncio.Lock()
        self._thread = CapacityLimiter(1)
        self._began = float("-inf")
        self._texts: dict[str, str] = {}
        self._failure = ""

    async def check(self) -> dict[str, str]:
        """Return a text for each server; raises ``UnavailableError`` if PostgreSQL cannot be used."""
        arrived = time.monotonic()
        async with self._lock:
            if self._began < arrived:
                began = time.monotonic()
                self._texts, self._failure = await to_thread.run_sync(self._ask, limiter=self._thread)
                self._began = began
            if self._failure:
                raise UnavailableError(self._failure)
            return self._texts

    def _ask(self) -> tuple[dict[str, str], str]:
        try:
            return {"postgresql": _postgresql(self._stores), "redis": _redis(self._stores)}, ""
        except (UnavailableError, ConfigurationError) as error:
            return {}, str(error)


def _postgresql(stores: Stores) -> str:
    try:
        return _answer_of_postgresql(stores)
    except UnavailableError as error:
        # After a restart of the server the first use of the pool finds its connections closed, and renews them.
        if getattr(error.__cause__, "connection_invalidated", False):
            return _answer_of_postgresql(stores)
        raise


def _answer_of_postgresql(stores: Stores) -> str:
    try:
        version = check_version(stores.engine)
        # A newer schema is compatible: replicas stay ready while others are being upgraded.
        check_schema(current_revision(stores.engine))
    except DBAPIError as error:
        # The server may have stopped between the two queries.
        raise UnavailableError(f"PostgreSQL does not respond: {type(error.orig).__name__}.") from error
    return version


def _redis(stores: Stores) -> str:
    try:
        stores.redis.ping()
    except redis.RedisError as error:  # most requests need none, and no other replica would have it
        return f"does not respond: {error}"
    return "ok"
