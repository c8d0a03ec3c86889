"""Stopping in order: a worker that is told to stop finishes what it can in time and hands back the rest at once.

The pool's processes hold leases of their own, so that the main process reaches them through a pipe: when its end is
closed, by the main process or by the kernel because that was killed, each of them hands back its leases and ends.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from workers.composition import keeper, stores

_FAREWELL_S: Final = 3.0
_TIDY_S: Final = 1.0
_log = logging.getLogger(__name__)


class Lifeline:
    """Two pipes between a worker's main process and those of its pool, made before the pool forks.

    One tells the pool that the main process has let go, the other tells the main process that the pool has ended.
    """

    def __init__(self) -> None:
        self._held, self._hold = os.pipe()
        self._ended, self._alive = os.pipe()

    def join(self) -> None:
        """In a process of the pool: hand back and end as soon as the main process lets go."""
        os.close(self._hold)
        threading.Thread(target=self._wait, name="lifeline", daemon=True).start()

    def drain(self, limit_s: float) -> None:
        """In the main process: let go in ``limit_s`` seconds, unless everything has been done and ended before."""
        threading.Thread(target=self._let_go, args=(limit_s,), name="drain", daemon=True).start()

    def _wait(self) -> None:
        os.read(self._held, 1)
        hand_back()
        # The work itself is fenced off by now; waiting for it is what must not happen.
        os._exit(0)

    def _let_go(self, limit_s: float) -> None:
        time.sleep(limit_s)
        os.close(self._hold)
        os.close(self._alive)
        hand_back()
        select.select([self._ended], [], [], _FAREWELL_S)
        # Without its pool Celery ends by itself and tidies up; threads that wait for a policy would keep it for ever.
        time.sleep(_TIDY_S)
        os._exit(0)


def hand_back() -> int:
    """Release every lease of this process, so that another worker does the work at once; return how many."""
    leases = keeper().held()
    try:
        released = stores().work.expire_leases(leases) if leases else 0
    except SQLAlchemyError as error:
        _log.warning("%d leases could not be handed back and will expire: %s", len(leases), type(error).__name__)
        return 0
    if released:
        _log.warning("handed back %d units of work, for another worker to do", released)
    return released


lifeline: Final = Lifeline()
