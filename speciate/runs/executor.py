"""What a worker holds, and the one entry for whoever hears a doorbell."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from uuid import UUID

from speciate.domain.errors import PolicyUnavailableError, SpeciateError, UnavailableError
from speciate.domain.policy import Policy
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient
from speciate.ports.work import Commit, CommitListener, Lease, WorkKind, WorkStore
from speciate.runs.evaluate import confirm, evaluate
from speciate.runs.generate import generate
from speciate.telemetry.logs import log_context
from speciate.telemetry.tracing import run_span

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkExecutor:
    """The ports a unit of work needs, put together by a composition root.

    Attributes:
        work: The work plane.
        signals: Who is told of commits.
        evaluator: Scores candidates.
        client_for: Returns the client that asks a policy.
        keep: Keeps a lease alive while its work is done.
        count: Hears what became of each unit (``done``, ``given_back``, ``defect`` or ``lost``) and how long it took.
    """

    work: WorkStore
    signals: CommitListener
    evaluator: EvaluatorClient
    client_for: Callable[[Policy], PolicyClient]
    keep: Callable[[Lease], AbstractContextManager[None]] = lambda _: nullcontext()
    count: Callable[[Lease, str, float], None] = lambda *_: None

    def execute(self, work_id: UUID) -> bool:
        """Do a unit of work if it is still to be done.

        A part that everybody needs and that does not answer (policy endpoint, evaluator, disk) pauses the run with
        the reason; the unit goes back and is done after the run is resumed. So does a defect of our own.

        Returns:
            Whether the unit was leased here.
        """
        lease = self.work.claim(work_id)
        if lease is None:
            return False
        started = time.perf_counter()
        names = {"run": str(lease.run_id), "work": str(work_id), "kind": lease.kind.value} | _candidates(lease)
        with log_context(**names), run_span(lease.kind.value, lease.run_id, work=str(work_id), attempt=lease.attempt):
            result = self._perform(lease)
            seconds = time.perf_counter() - started
            _log.info("%s in %.1f ms", result, seconds * 1e3)
        self.count(lease, result, seconds)
        return True

    def _perform(self, lease: Lease) -> str:
        """Do a leased unit; return what became of it."""
        result = "done"
        try:
            with self.keep(lease):
                commit = self._do(lease)
        except UnavailableError as error:
            result = "given_back"
            _log.warning("run %s pauses: %s", lease.run_id, error)
            tokens = error.spent_tokens if isinstance(error, PolicyUnavailableError) else None
            commit = self.work.release(lease, str(error), tokens=tokens)
        except Exception as error:  # noqa: BLE001 - the boundary: a defect pauses its run, seen and with the reason
            result = "defect"
            _log.exception("run %s pauses: %s work %s met a defect", lease.run_id, lease.kind.value, lease.work_id)
            reason = f"a defect in {lease.kind.value} work: {type(error).__name__}: {error!s:.500}"
            commit = self.work.release(lease, f"{reason}. The worker's log has more; resume to try again.")
        if commit is None:
            _log.info("lease of %s work %s was lost, its result is dropped", lease.kind.value, lease.work_id)
            return "lost"
        self.signals.committed(commit)
        return result

    def _do(self, lease: Lease) -> Commit | None:
        match lease.kind:
            case WorkKind.GENERATE:
                return generate(lease, self.work, self.client_for)
            case WorkKind.EVALUATE:
                return evaluate(lease, self.work, self.evaluator)
            case WorkKind.CONFIRM:
                return confirm(lease, self.work, self.evaluator)


def _candidates(lease: Lease) -> dict[str, str]:
    """Return which candidates a unit is about, by their numbers in the run."""
    match lease.kind:
        case WorkKind.EVALUATE:
            first = int(lease.payload["first"])
            return {"candidates": f"{first}-{first + len(lease.payload['proposals']) - 1}"}
        case WorkKind.CONFIRM:
            return {"candidates": str(lease.payload["number"])}
        case _:
            return {}


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


class LocalQueue:
    """``Signals`` that remember the doorbells instead of ringing them."""

    def __init__(self) -> None:
        self.waiting: deque[UUID] = deque()

    def committed(self, commit: Commit) -> None:
        """Remember what became ready."""
        self.waiting.extend(ref.id for ref in commit.dispatch)


def drain(executor: WorkExecutor, signals: LocalQueue, *, most_units: int = 1_000_000) -> int:
    """Do work, first come first served, until none is left.

    Args:
        executor: What the work needs; its ``signals`` are the ones below.
        signals: Where doorbells arrive, the first of them already.
        most_units: Bound on the units of work.

    Returns:
        Units done.
    """
    done = 0
    while signals.waiting and done < most_units:
        done += executor.execute(signals.waiting.popleft())
    return done
