"""Start a worker: wait for the database schema, then announce the process until it stops."""

import logging
import os
import threading
import time
from typing import Any, Final

import psycopg
from sqlalchemy.exc import DBAPIError

from speciate import __version__
from speciate.domain.capabilities import IMAGE_CAPABILITIES
from speciate.domain.errors import ConfigurationError, SpeciateError
from speciate.domain.known_languages import LANGUAGE_PROGRAMS
from speciate.messaging.presence import ANNOUNCE_INTERVAL_S, announce, withdraw
from speciate.ports.work import Queue
from speciate.schema.runs import WorkerProcess
from speciate.settings import Settings
from speciate.storage.database import first_line
from speciate.storage.migrate import NEWEST_REVISION, check_schema, revision_of
from speciate.storage.stores import Stores
from speciate.storage.work.waiting_runs import needed_capabilities
from workers.composition import evaluator, settings

_POLL_S: Final = 0.2
_WARN_S: Final = 10.0
_SLOW_S: Final = 60
"""Seconds that two container engines take at most to answer, and more."""
_log = logging.getLogger(__name__)


def wait_for_schema(settings: Settings) -> None:
    """Return once the schema is recent enough for this version; another process migrates it."""
    url = "" if settings.database_url is None else settings.database_url.get_secret_value()
    warned = time.monotonic()
    while (problem := _schema_problem(url)) is not None:
        if time.monotonic() - warned >= _WARN_S:
            warned = time.monotonic()
            _log.warning("this worker waits: %s", problem)
        time.sleep(_POLL_S)


def _schema_problem(url: str) -> str | None:
    try:
        check_schema(revision := revision_of(url))
    except psycopg.OperationalError as error:
        return f"PostgreSQL does not respond: {first_line(error)}. Check SPECIATE_DATABASE_URL."
    except psycopg.Error as error:  # its text may hold the password
        return f"cannot read the schema revision of the database ({type(error).__name__})"
    except ConfigurationError as error:
        return str(error)
    if revision != NEWEST_REVISION:
        _log.warning("the schema has revision %s; this worker, built for %s, works with it", revision, NEWEST_REVISION)
    return None


class Presence:
    """Announce a worker from a thread of its main process until it stops."""

    def __init__(self, stores: Stores, worker: WorkerProcess) -> None:
        self._stores = stores
        self._worker = worker
        self._stopping = threading.Event()
        self._renewing = threading.Lock()

    def start(self) -> None:
        announce(self._stores.redis, self._worker, _SLOW_S)
        # A pool process must not inherit a lock that the thread holds.
        lock = self._renewing
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
        threading.Thread(target=self._repeat, name="presence", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        withdraw(self._stores.redis, self._worker.name)

    def _repeat(self) -> None:
        # In this thread: an engine may take seconds to answer.
        if Queue.EVALUATE.value in self._worker.queues and (removed := evaluator().sweep_containers()):
            _log.warning("removed %d containers that a killed worker had left", removed)
        rested_at, renewed = time.monotonic(), self._worker
        while not self._stopping.wait(ANNOUNCE_INTERVAL_S):
            with self._renewing:
                announce(self._stores.redis, renewed, _SLOW_S)  # while an engine does not answer
                announce(self._stores.redis, renewed := self._renewed())
                if time.monotonic() - rested_at >= settings().rest_s:
                    rested_at = time.monotonic()
                    self._stores.close_unused()

    def _renewed(self) -> WorkerProcess:
        """Return the worker with the programs that running problems need now, which may be installed meanwhile."""
        if Queue.EVALUATE.value not in self._worker.queues:
            return self._worker
        try:
            needed = needed_capabilities(self._stores.engine)
        except (SpeciateError, DBAPIError):  # PostgreSQL does not respond
            return self._worker
        return self._worker.model_copy(
            update={"tools": evaluator().capabilities({*LANGUAGE_PROGRAMS, *IMAGE_CAPABILITIES, *needed})}
        )


def describe(consumer: Any, queues: tuple[str, ...]) -> WorkerProcess:
    capabilities: dict[str, Any] = {"tier": ""}
    if Queue.EVALUATE.value in queues:
        tools = evaluator().capabilities(LANGUAGE_PROGRAMS | IMAGE_CAPABILITIES)
        capabilities = {"tier": evaluator().tier, "languages": evaluator().languages(), "tools": tools}
    return WorkerProcess(
        name=consumer.hostname,
        pid=os.getpid(),
        version=__version__,
        queues=queues,
        slots=int(consumer.pool.limit or 1),
        **capabilities,
    )
