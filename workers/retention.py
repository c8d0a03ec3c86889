"""Pruning by itself: once an hour control removes the texts of runs that ended longer ago than they are retained."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from speciate.domain.errors import SpeciateError
from speciate.domain.run import RunState
from speciate.storage.plane import Plane
from speciate.storage.retention import DEAD, Retention

_EVERY_S: Final = 3600.0
_log = logging.getLogger(__name__)


class Retainer:
    """Starts a pass in a thread of its own: it may take minutes, and reconciling must not wait."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._thread: threading.Thread | None = None

    def run(self, plane: Plane, retain_days: float | None) -> None:
        """Begin a pass if one is due. Two of them at once, after an election, do the same and no harm."""
        if retain_days is None or (self._last is not None and time.monotonic() - self._last < _EVERY_S):
            return
        if self._thread is None or not self._thread.is_alive():
            self._last = time.monotonic()
            self._thread = threading.Thread(target=prune_old, args=(plane, retain_days), name="retention", daemon=True)
            self._thread.start()


def prune_old(plane: Plane, retain_days: float) -> int:
    """Prune every run that ended longer ago; return how many."""
    retention, now = Retention(plane.engine), datetime.now(UTC)
    try:
        found = retention.prunable(now - timedelta(days=retain_days), (*DEAD, RunState.COMPLETED))
        for _ in retention.prune(found, now):
            pass
    except SpeciateError as error:
        _log.warning("pruning stops until the next hour: %s", error)
        return 0
    except Exception:  # noqa: BLE001 - the boundary of a thread: seen in the log, tried again in an hour
        _log.exception("pruning met a defect")
        return 0
    if found:
        _log.warning("pruned %d runs that ended more than %g days ago", len(found), retain_days)
    return len(found)
