"""End pool processes that have been idle for a time after work; Celery replaces them.

Work leaves a pool process with a copy of memory that it shared with the main process, warm sandboxes and connections.
Its successor has none of them.
"""

import os
import threading
import time
from typing import Final

from celery.concurrency.prefork import process_destructor

from workers.composition import evaluator


class IdleExit:
    """Ends this pool process when its last task is long enough ago."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = 0
        self._worked = threading.Event()
        self._since = 0.0

    def watch(self, limit_s: float) -> None:
        """End this process ``limit_s`` seconds after its last task, unless another one has begun."""
        threading.Thread(target=self._watch, args=(limit_s,), name="idle-exit", daemon=True).start()

    def task_ended(self, **_: object) -> None:
        self._since = time.monotonic()
        self._tasks -= 1
        self._worked.set()

    def task_began(self, **_: object) -> None:
        """Wait while the sandboxes of this process are stopped."""
        self._tasks += 1
        with self._lock:
            pass

    def _watch(self, limit_s: float) -> None:
        self._worked.wait()
        while True:
            time.sleep(max(self._since + limit_s - time.monotonic(), limit_s / 10))
            with self._lock:
                if not self._tasks and time.monotonic() - self._since >= limit_s:
                    self._leave()

    def _leave(self) -> None:
        evaluator().close()
        if self._tasks:
            return  # one came meanwhile, and runs here
        process_destructor(os.getpid(), os.EX_OK)
        os._exit(os.EX_OK)


idle_exit: Final = IdleExit()
