"""Threads that execute jobs, and the share of cores that an evaluation takes."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from speciate.ports.interruption import interrupted

_log = logging.getLogger(__name__)


class ThreadSlots:
    """At most ``count`` threads of lower priority, started as jobs arrive. They do not keep the process alive."""

    def __init__(self, name: str, count: int, *, nice: int) -> None:
        self._name, self._count, self._nice = name, count, nice
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], object]] = deque()
        self._threads = self._idle = 0
        self._stopping = False

    def put(self, job: Callable[[], object]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
            if len(self._jobs) > self._idle and self._threads < self._count and not self._stopping:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()

    def stop(self) -> None:
        """Begin no other job."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, deadline: float) -> bool:
        """Wait for the jobs in progress until a time of the monotonic clock; return False if one goes on."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads, max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001 - PostgreSQL does not respond, say: the reconciler sends the unit again
                _log.exception("a unit of work failed")

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            self._idle -= 1
            if self._stopping:
                self._threads -= 1
                self._changed.notify_all()
                return None
            return self._jobs.popleft()


class CoreShares:
    """Cores of this process, shared by evaluations of several cores; those of workers lock them per process."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._changed = threading.Condition()

    @contextmanager
    def take(self, cores: int) -> Iterator[None]:
        """Hold as many cores as an evaluation needs, at most all; wait for them unless it is interrupted."""
        needed = min(max(cores, 1), self._count)
        with self._changed:
            while self._free < needed and not interrupted():
                self._changed.wait(0.1)
            self._free -= needed
        try:
            yield
        finally:
            with self._changed:
                self._free += needed
                self._changed.notify_all()
