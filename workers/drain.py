"""Stop a worker gracefully: finish work within the drain time, then release the remaining leases.

The pool's processes hold leases of their own, so the main process signals them through a pipe. When its end closes,
because the main process closed it or was killed, every pool process releases its leases and exits.
"""

import logging
import os
import select
import threading
import time
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from workers.composition import remove_files, stores, worker

_POOL_EXIT_S: Final = 3.0
_CELERY_EXIT_S: Final = 1.0
_log = logging.getLogger(__name__)


class DrainCoordinator:
    """Two pipes between a worker's main process and its pool, created before the pool forks.

    One signals the pool that the main process stops, the other signals the main process that the pool has exited.
    """

    def __init__(self) -> None:
        self._stop_reader, self._stop_writer = os.pipe()
        self._exit_reader, self._exit_writer = os.pipe()

    def join(self) -> None:
        """In a pool process: release the leases and exit as soon as the main process stops."""
        os.close(self._stop_writer)
        threading.Thread(target=self._wait, name="drain-wait", daemon=True).start()

    def drain(self, limit_s: float) -> None:
        """In the main process: stop the pool after ``limit_s`` seconds unless all work ends earlier."""
        threading.Thread(target=self._stop, args=(limit_s,), name="drain", daemon=True).start()

    def _wait(self) -> None:
        os.read(self._stop_reader, 1)
        release_leases()
        remove_files()
        # The work itself is fenced off by now: exit without waiting for it.
        os._exit(0)

    def _stop(self, limit_s: float) -> None:
        time.sleep(limit_s)
        os.close(self._stop_writer)
        os.close(self._exit_writer)
        release_leases()
        select.select([self._exit_reader], [], [], _POOL_EXIT_S)
        # Without its pool Celery shuts down by itself; threads that wait for a policy would keep it alive forever.
        time.sleep(_CELERY_EXIT_S)
        os._exit(0)


def release_leases() -> None:
    """Release every lease of this process, so that another worker takes over at once."""
    leases = worker().keeper.leases()
    try:
        released = stores().work.expire_leases(leases) if leases else 0
    except SQLAlchemyError as error:
        _log.warning("could not release %d leases, they will expire: %s", len(leases), type(error).__name__)
        return
    if released:
        _log.warning("released %d work units for other workers", released)


drain_coordinator: Final = DrainCoordinator()
