"""Run the reconciler: one leader among all control workers, one pass a second."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from evaluators.evaluator_factory import open_environments
from speciate.domain.errors import ConflictError, SpeciateError
from speciate.domain.run import RunState
from speciate.messaging.client_library import redis
from speciate.messaging.presence import ANNOUNCE_INTERVAL_S, present_workers
from speciate.ports.work import Queue
from speciate.storage.database import guarded
from speciate.storage.declarations.campaigns import CampaignStore
from speciate.storage.declarations.tournaments import TournamentStore
from speciate.storage.metrics.counters import LEASES_EXPIRED, MESSAGES_RESENT, POISONED, WorkerCounters
from speciate.storage.runs.store import UNENDED
from speciate.storage.stores import Stores
from speciate.storage.work.reconciler import DOWNTIME_S, beat, exclude_downtime, report_stalled
from speciate.storage.work.waiting_runs import report_waiting
from workers.campaigns import CampaignController
from workers.composition import settings, stores, worker
from workers.retention import RetentionJob
from workers.tournaments import TournamentController

_LEADER_KEY: Final = 0x5EC1A7ED
# A leader uses its session in every pass. One that is frozen, or whose host vanished, would keep the lock for hours.
_DEPOSE: Final = sa.text("""
    SELECT pg_terminate_backend(a.pid)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = :key AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND a.state_change < clock_timestamp() - make_interval(secs => :silent_s)
""")
_PASS_S: Final = 1.0
# Most installations rest most of the time: one statement, the sign of life, says so, and a pass has no other.
_PENDING: Final = (UNENDED, TournamentStore.sql.pending, CampaignStore.sql.pending)
_STALL_CHECK_S: Final = 10.0
_log = logging.getLogger(__name__)


def start_reconciler() -> threading.Thread:
    """Start the loop in a thread of this process; it waits until it can lead."""
    thread = threading.Thread(target=reconcile_forever, args=(stores(),), name="reconciler", daemon=True)
    thread.start()
    return thread


def reconcile_forever(stores: Stores, *, stop: threading.Event | None = None) -> None:
    """Lead and reconcile until ``stop`` is set; a lost database connection means a new election."""
    stop = stop or threading.Event()
    while not stop.is_set():
        try:
            # Passes take seconds; a leader that was deposed during a longer one notices at its end.
            with leadership(stores.direct, silent_s=2 * settings().lease_s) as leads:
                fresh = True
                while not stop.is_set():
                    if leads():
                        if fresh:
                            exclude_downtime(stores.engine)
                            leads.beat()
                            fresh = False
                        _one_pass(stores, busy=leads.busy)
                    waited = time.time()
                    stop.wait(_PASS_S)
                    if time.time() - waited > DOWNTIME_S:
                        break  # the machine slept, which is no work of the runs: begin as after a stop
        except (DBAPIError, SpeciateError) as error:
            _log.warning("the reconciler retries: %s", error)
        except Exception:  # noqa: BLE001 - without a reconciler lost work is never recovered: it must survive any defect
            _log.exception("the reconciler failed unexpectedly and retries")
        stop.wait(_PASS_S)


def _one_pass(stores: Stores, *, busy: bool) -> None:
    config = settings()
    if busy:
        with guarded("recovery of runs"):
            recover(stores, lambda: worker().counters)
        with guarded("tournaments"):
            _tournaments.run(stores)
        with guarded("campaigns"):
            _campaigns.run(stores)
    with guarded("reports of stalled runs"):
        _report_stalls(stores)
    with guarded("reports of waiting runs"):
        _report_waiting(stores)
    with guarded("the check of the disk"):
        pause_when_full(stores, config.data_dir, config.min_free_bytes)
    with guarded("retention"):
        _retention.run(stores, config.retain_days, config.audit_days, config.purge_days, open_environments(config))


def recover(stores: Stores, counters: Callable[[], WorkerCounters], runs: Sequence[UUID] | None = None) -> None:
    """Return lost work of all runs, or those given, to the queue, and publish what changed."""
    report = stores.work.reconcile(runs)
    for commit in report.commits:
        stores.signals.committed(commit)
    for family, count in (
        (LEASES_EXPIRED, report.retried),
        (POISONED, report.poisoned),
        (MESSAGES_RESENT, report.resent),
    ):
        if count:
            counters().add(family, by=count)
    if report.retried or report.poisoned:
        _log.warning("reclaimed %d leases, abandoned %d work units", report.retried, report.poisoned)
    for commit in stores.evaluations.fail_lapsed():
        stores.signals.committed(commit)


def _every(interval_s: Callable[[], float], step: Callable[[Stores], None]) -> Callable[[Stores], None]:
    """Return a step that runs at most once an interval, first after one interval."""
    last = time.monotonic()

    def run(stores: Stores) -> None:
        nonlocal last
        if time.monotonic() - last >= interval_s():
            last = time.monotonic()
            step(stores)

    return run


def _tell_stalls(stores: Stores) -> None:
    """Report runs without progress: without commits nothing else would."""
    stall_s = settings().stall_s
    for commit in report_stalled(stores.engine, stall_s=stall_s):
        _log.warning("run %s is stalled: no commit for %g s", commit.run_id, stall_s)
        stores.signals.committed(commit)


def _tell_waiting(stores: Stores) -> None:
    """Report runs that wait for a worker with their language, and those that wait no longer."""
    try:
        workers = present_workers(stores.redis)
    except redis.RedisError:
        return
    evaluating = [worker for worker in workers if Queue.EVALUATE.value in worker.queues]
    machines, tiers = [{*worker.tools} for worker in evaluating], {worker.tier for worker in evaluating}
    for commit in report_waiting(stores.engine, machines, tiers):
        stores.signals.committed(commit)


_report_stalls = _every(lambda: min(_STALL_CHECK_S, settings().stall_s), _tell_stalls)
_report_waiting = _every(lambda: ANNOUNCE_INTERVAL_S, _tell_waiting)
_tournaments = TournamentController()
_campaigns = CampaignController()
_retention = RetentionJob()


def pause_when_full(stores: Stores, data_dir: Path, min_free_bytes: int) -> int:
    """Pause all running runs if the embedded servers' disk has less than ``min_free_bytes`` left; return their number.

    PostgreSQL stops when it cannot extend its write-ahead log. A run paused before that loses nothing.
    """
    cluster = data_dir / "postgres"
    if not cluster.exists():
        return 0
    free = shutil.disk_usage(cluster).free
    if free >= min_free_bytes:
        return 0
    reason = (
        f"the disk is full: {free >> 20} MiB are left for {data_dir}, {min_free_bytes >> 20} MiB are needed."
        " Free space, then resume the run."
    )
    paused = 0
    while running := stores.runs.list(state=RunState.RUNNING).items:
        for run in running:
            try:
                stores.signals.committed(stores.runs.pause(run.id, reason, fault=True))
                paused += 1
            except ConflictError as error:
                _log.info("%s", error)
    if paused:
        _log.warning("paused %d runs: %s", paused, reason)
    return paused


@contextmanager
def leadership(engine: sa.Engine, *, silent_s: float) -> Iterator["_LeaderLock"]:
    """Hold a connection, past any pooler, whose advisory lock makes this process the leader.

    The session of another leader is ended after ``silent_s`` seconds without a sign of life.
    """
    # The lock belongs to the session: without a transaction it lives as long as the connection does.
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        lock = _LeaderLock(connection, silent_s)
        try:
            yield lock
        finally:
            connection.invalidate()


class _LeaderLock:
    """Return True on a call if the lock is held; a failed call means the connection is lost.

    Every call but the first that holds it is a sign of life: a new leader reads the last one of its predecessor before.

    Attributes:
        busy: True if there was something to reconcile at the last sign of life.
    """

    def __init__(self, connection: sa.Connection, silent_s: float) -> None:
        self._connection = connection
        self._silent_s = silent_s
        self._leads = False
        self.busy = False

    def __call__(self) -> bool:
        if self._leads:
            self.beat()
        else:
            self._leads = bool(self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LEADER_KEY))).scalar())
            if not self._leads:
                ended = self._connection.execute(_DEPOSE, {"key": _LEADER_KEY, "silent_s": self._silent_s}).all()
                if ended:
                    _log.warning("the reconciler's leader was silent for %g s: its session was ended", self._silent_s)
        return self._leads

    def beat(self) -> None:
        self.busy = beat(self._connection, *_PENDING)
