"""Saying that this worker is there."""

from __future__ import annotations

import os
import threading
from typing import Any

from speciate import __version__
from speciate.ports.records.work import WorkerProcess
from speciate.ports.work import Queue
from speciate.storage.presence import INTERVAL_S, announce, withdraw
from speciate.storage.stores import Stores
from workers.composition import evaluator


class Presence:
    """Announces a worker from a thread of its main process until it stops."""

    def __init__(self, stores: Stores, worker: WorkerProcess) -> None:
        self._stores = stores
        self._worker = worker
        self._stopping = threading.Event()

    def start(self) -> None:
        """Announce at once, then every few seconds."""
        announce(self._stores.redis, self._worker)
        threading.Thread(target=self._repeat, name="presence", daemon=True).start()

    def stop(self) -> None:
        """Withdraw."""
        self._stopping.set()
        withdraw(self._stores.redis, self._worker.name)

    def _repeat(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            announce(self._stores.redis, self._worker)


def describe(consumer: Any, queues: tuple[str, ...]) -> WorkerProcess:
    """Return what is known of the Celery worker that a consumer belongs to."""
    return WorkerProcess(
        name=consumer.hostname,
        pid=os.getpid(),
        version=__version__,
        queues=queues,
        slots=int(consumer.pool.limit or 1),
        tier=evaluator().tier if Queue.EVALUATE.value in queues else "",
    )
