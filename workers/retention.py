"""Pruning by itself: once an hour control removes what is older than it is retained.

That is the texts of runs that ended, and entries of the audit log.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from speciate.domain.errors import SpeciateError
from speciate.domain.run import RunState
from speciate.storage.retention import DEAD, Retention
from speciate.storage.stores import Stores

_EVERY_S: Final = 3600.0
_log = logging.getLogger(__name__)


class Retainer:
    """Starts a pass in a thread of its own: it may take minutes, and reconciling must not wait."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._thread: threading.Thread | None = None

    def run(self, stores: Stores, retain_days: float | None, audit_days: float) -> None:
        """Begin a pass if one is due. Two of them at once, after an election, do the same and no harm."""
        nothing = retain_days is None and not audit_days
        if nothing or (self._last is not None and time.monotonic() - self._last < _EVERY_S):
            return
        if self._thread is None or not self._thread.is_alive():
            self._last = time.monotonic()
            self._thread = threading.Thread(
                target=_pass, args=(stores, retain_days, audit_days), name="retention", daemon=True
            )
            self._thread.start()


def _pass(stores: Stores, retain_days: float | None, audit_days: float) -> None:
    try:
        if retain_days is not None:
            prune_old(stores, retain_days)
        if audit_days:
            forget_old(stores, audit_days)
    except SpeciateError as error:
        _log.warning("pruning stops until the next hour: %s", error)
    except Exception:  # noqa: BLE001 - the boundary of a thread: seen in the log, tried again in an hour
        _log.exception("pruning met a defect")


def forget_old(stores: Stores, audit_days: float) -> int:
    """Delete the entries of the audit log that are older; return how many."""
    went = stores.audit.forget(datetime.now(UTC) - timedelta(days=audit_days), "retention")
    if went:
        _log.warning("deleted %d entries of the audit log that were older than %g days", went, audit_days)
    return went


def prune_old(stores: Stores, retain_days: float) -> int:
    """Prune every run that ended longer ago; return how many."""
    retention, now = Retention(stores.engine), datetime.now(UTC)
    found = retention.prunable(now - timedelta(days=retain_days), (*DEAD, RunState.COMPLETED))
    for _ in retention.prune(found, now):
        pass
    if found:
        _log.warning("pruned %d runs that ended more than %g days ago", len(found), retain_days)
    return len(found)
