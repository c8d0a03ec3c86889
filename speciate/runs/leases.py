"""Keeping leases alive while their work is done."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from speciate.domain.errors import SpeciateError
from speciate.ports.work import Lease

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Prolongs the leases of this process from one thread, which lives only while there are any."""

    def __init__(self, extend: Callable[[Lease], bool], *, interval_s: float = 10.0) -> None:
        self._extend = extend
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._held: dict[UUID, Lease] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Prolong the lease every ``interval_s`` seconds until the block ends."""
        with self._lock:
            self._held[lease.token] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="lease-keeper", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(lease.token, None)

    def held(self) -> list[Lease]:
        """Return the leases of the work that this process does now."""
        with self._lock:
            return list(self._held.values())

    def _beat(self) -> None:
        while not self._wake.wait(self._interval_s):
            for lease in self.held():
                try:
                    if not self._extend(lease):
                        _log.info("lease of work %s is lost", lease.work_id)
                except SpeciateError as error:
                    # The lease may lapse now; then its work is done again and this result is fenced off.
                    _log.warning("lease of work %s could not be prolonged: %s", lease.work_id, error)
                except Exception:  # noqa: BLE001 - one defect must not let the leases of all others lapse
                    _log.exception("lease of work %s could not be prolonged", lease.work_id)
