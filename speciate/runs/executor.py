"""Execute work units under a lease, in a worker or in one process."""

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
from speciate.ports.interruption import interruptible
from speciate.ports.learner import Learner
from speciate.ports.policy import PolicyClient
from speciate.ports.work import Commit, CommitListener, Lease, WorkKind, WorkStore
from speciate.runs import loop
from speciate.runs.external_evaluation import EvaluationPending, ExternalEvaluator
from speciate.runs.training_step import learn
from speciate.telemetry.logs import log_context
from speciate.telemetry.tracing import span

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkExecutor:
    work: WorkStore
    signals: CommitListener
    evaluator: EvaluatorClient
    client_for: Callable[[Policy], PolicyClient]
    # Renews a lease while its work is in progress.
    keep: Callable[[Lease], AbstractContextManager[None]] = lambda _: nullcontext()
    # Receives the result (``done``, ``parked``, ``released``, ``error`` or ``lost``) and duration of each unit.
    count: Callable[[Lease, str, float], None] = lambda *_: None
    # Returns the learner; None in processes that take no ``learn`` units.
    learner_for: Callable[[], Learner] | None = None

    def execute(self, work_id: UUID) -> bool:
        """Execute a work unit; False if it is done or leased elsewhere.

        If a shared service (policy endpoint, evaluator, disk) is unavailable, the unit is released and its run pauses
        with the reason. The same happens on an unexpected exception.
        """
        lease = self.work.claim(work_id)
        if lease is None:
            return False
        started = time.perf_counter()
        names = {"run": str(lease.run_id), "work": str(work_id), "kind": lease.kind.value} | _candidates(lease)
        with log_context(**names), span(lease.kind.value, lease.run_id, work=str(work_id), attempt=lease.attempt):
            result = self._execute(lease)
            seconds = time.perf_counter() - started
            _log.info("%s in %.1f ms", result, seconds * 1e3)
        self.count(lease, result, seconds)
        return True

    def _execute(self, lease: Lease) -> str:
        """Execute a leased unit; return its result as ``count`` receives it."""
        result = "done"
        try:
            with self.keep(lease):
                commit = self._run(lease)
        except EvaluationPending as pending:
            result = "parked"
            commit = self.work.park(lease, pending.requests)
        except UnavailableError as error:
            result = "released"
            _log.warning("run %s pauses: %s", lease.run_id, error)
            spent = error.spent if isinstance(error, PolicyUnavailableError) else None
            commit = self.work.release(lease, str(error), spent=spent)
        except Exception as error:  # noqa: BLE001 - the boundary: an unexpected exception pauses the run with its reason
            result = "error"
            _log.exception("run %s pauses: unexpected exception in %s work %s", lease.run_id, lease.kind, lease.work_id)
            # The text of an exception may quote a statement or a secret: it stays in the log.
            reason = f"unexpected {type(error).__name__} in {lease.kind.value} work {lease.work_id}"
            commit = self.work.release(lease, f"{reason}. The worker's log names the cause; resume the run to retry.")
        if commit is None:
            _log.info("lease of %s work %s was lost, its result is dropped", lease.kind.value, lease.work_id)
            return "lost"
        self.signals.committed(commit)
        return result

    def _run(self, lease: Lease) -> Commit | None:
        match lease.kind:
            case WorkKind.GENERATE:
                return loop.generate(lease, self.work, self.client_for)
            case WorkKind.EVALUATE:
                return loop.evaluate(lease, self.work, self._evaluator_of(lease))
            case WorkKind.CONFIRM:
                return loop.confirm(lease, self.work, self._evaluator_of(lease))
            case WorkKind.LEARN:
                return learn(lease, self.work, self.learner_for)

    def _evaluator_of(self, lease: Lease) -> EvaluatorClient:
        if self.work.context(lease.run_id).problem.attested:
            return ExternalEvaluator(lease, self.work, self.evaluator)
        return self.evaluator


def _candidates(lease: Lease) -> dict[str, str]:
    match lease.kind:
        case WorkKind.EVALUATE:
            first = int(lease.payload["first"])
            return {"candidates": f"{first}-{first + len(lease.payload['proposals']) - 1}"}
        case WorkKind.CONFIRM:
            return {"candidates": str(lease.payload["number"])}
        case _:
            return {}


class LeaseKeeper:
    """Renews the leases of this process from one thread, started with the first lease."""

    def __init__(self, extend: Callable[[Lease], bool], *, interval_s: float = 10.0) -> None:
        self._extend = extend
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._leases: dict[UUID, tuple[Lease, threading.Event]] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Renew the lease every ``interval_s`` seconds until the block ends; interrupt the block if it is lost."""
        lost = threading.Event()
        with self._lock:
            self._leases[lease.token] = lease, lost
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="lease-keeper", daemon=True)
                self._thread.start()
        try:
            with interruptible(lost):
                yield
        finally:
            with self._lock:
                self._leases.pop(lease.token, None)

    def close(self) -> None:
        """Renew no more."""
        self._wake.set()

    def interrupt(self) -> None:
        """Interrupt all blocks as if their leases were lost."""
        with self._lock:
            for _, lost in self._leases.values():
                lost.set()

    def leases(self) -> list[Lease]:
        with self._lock:
            return [lease for lease, _ in self._leases.values()]

    def _beat(self) -> None:
        while not self._wake.wait(self._interval_s):
            with self._lock:
                leases = list(self._leases.values())
            for lease, lost in leases:
                try:
                    if not self._extend(lease):
                        _log.info("lease of work %s is lost", lease.work_id)
                        lost.set()
                except SpeciateError as error:
                    # The lease may expire. The work is then repeated, and the result of this attempt is fenced off.
                    _log.warning("lease of work %s could not be renewed: %s", lease.work_id, error)
                except Exception:  # noqa: BLE001 - one unexpected exception must not let all other leases expire
                    _log.exception("lease of work %s could not be renewed", lease.work_id)


class LocalQueue:
    """A ``CommitListener`` that queues dispatched work units in this process."""

    def __init__(self) -> None:
        self.waiting: deque[UUID] = deque()

    def committed(self, commit: Commit) -> None:
        self.waiting.extend(ref.id for ref in commit.dispatch)


def drain(executor: WorkExecutor, queue: LocalQueue, *, most_units: int = 1_000_000) -> int:
    """Execute queued work units in order until the queue is empty, for tests and replays.

    ``queue`` holds the first units, and is also the executor's ``signals``. Returns the number of executed units.
    """
    done = 0
    while queue.waiting and done < most_units:
        done += executor.execute(queue.waiting.popleft())
    return done
