"""The reconciler's loop: one leader among all control workers, one pass a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from speciate.domain.errors import SpeciateError
from speciate.storage.counters import LEASES_EXPIRED, POISONED, RUNG_AGAIN
from speciate.storage.reconciler import beat, book_downtime
from speciate.storage.stalls import tell_stalled
from speciate.storage.stores import Stores
from workers.campaigns import CampaignTender
from workers.composition import counters, settings, stores
from workers.disk import pause_when_full
from workers.retention import Retainer
from workers.tournaments import Tender

_LEADER_KEY: Final = 0x5EC1A7ED
_PASS_S: Final = 1.0
_REFRESH_S: Final = 30.0
_STALLS_S: Final = 10.0
_log = logging.getLogger(__name__)


def start_reconciler() -> threading.Thread:
    """Start the loop in a thread of this process; it waits until it can lead."""
    thread = threading.Thread(target=reconcile_forever, args=(stores(),), name="reconciler", daemon=True)
    thread.start()
    return thread


def reconcile_forever(stores: Stores, *, stop: threading.Event | None = None) -> None:
    """Lead and reconcile until ``stop`` is set; a lost database means a new election."""
    stop = stop or threading.Event()
    while not stop.is_set():
        try:
            with _leadership(stores.direct) as leads:
                fresh = True
                while not stop.is_set():
                    if leads():
                        if fresh:
                            book_downtime(stores.engine)
                            fresh = False
                        beat(stores.engine)
                        _one_pass(stores)
                    stop.wait(_PASS_S)
        except (DBAPIError, SpeciateError) as error:
            _log.warning("the reconciler tries again: %s", error)
        except Exception:  # noqa: BLE001 - without a reconciler nothing is mended any more: it must outlive any defect
            _log.exception("the reconciler met a defect and tries again")
        stop.wait(_PASS_S)


def _one_pass(stores: Stores) -> None:
    report = stores.work.reconcile()
    for commit in report.commits:
        stores.signals.committed(commit)
    for family, count in (
        (LEASES_EXPIRED, report.retried),
        (POISONED, report.poisoned),
        (RUNG_AGAIN, report.resent),
    ):
        if count:
            counters().add(family, by=count)
    if report.retried or report.poisoned:
        _log.warning("took back %d leases, gave up %d units of work", report.retried, report.poisoned)
    _refresh.run(stores)
    _stalls.run(stores)
    pause_when_full(stores, settings().data_dir, settings().min_free_bytes)
    _tender.run(stores)
    _campaigns.run(stores)
    _retainer.run(stores, settings().retain_days, settings().audit_days)


class _Refresh:
    """Has caches rebuilt now and then: an update is lost when a worker dies between its commit and Redis."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def run(self, stores: Stores) -> None:
        if time.monotonic() - self._last >= _REFRESH_S:
            self._last = time.monotonic()
            stores.signals.forget(stores.runs.unfinished())


class _Stalls:
    """Says of runs that get nowhere that they do: nobody else would, when nothing happens."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def run(self, stores: Stores) -> None:
        stall_s = settings().stall_s
        if time.monotonic() - self._last >= min(_STALLS_S, stall_s):
            self._last = time.monotonic()
            for commit in tell_stalled(stores.engine, stall_s=stall_s):
                _log.warning("run %s is stuck: nothing was committed for %g s", commit.run_id, stall_s)
                stores.signals.committed(commit)


_refresh = _Refresh()
_stalls = _Stalls()
_tender = Tender()
_campaigns = CampaignTender()
_retainer = Retainer()


@contextmanager
def _leadership(engine: sa.Engine) -> Iterator[_Leads]:
    """Hold a connection whose advisory lock makes this process the leader."""
    # The lock belongs to the session: without a transaction it lives as long as the connection does.
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        leads = _Leads(connection)
        try:
            yield leads
        finally:
            connection.invalidate()


class _Leads:
    """Tells whether the lock is held, and thereby whether the connection still lives."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._held = False

    def __call__(self) -> bool:
        if self._held:
            self._connection.execute(sa.select(1))
        else:
            self._held = bool(self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LEADER_KEY))).scalar())
        return self._held
