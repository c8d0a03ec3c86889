"""Composition root of a worker process: its shared objects, created once and after the fork."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial

from evaluators.core_slots import CoreSlots
from evaluators.evaluator import SandboxEvaluator
from evaluators.evaluator_factory import open_evaluator
from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem
from speciate.messaging.active import ActiveEvaluations
from speciate.messaging.client_library import redis
from speciate.messaging.presence import ANNOUNCE_INTERVAL_S, present_workers
from speciate.messaging.replays import ReplayQueue
from speciate.messaging.seed_checks import SeedChecks
from speciate.policies.kind import ClientContext
from speciate.policies.pool import ClientPool
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.learner import Learner
from speciate.ports.work import Lease, Queue
from speciate.runs.evaluation import replay_evaluation
from speciate.runs.executor import LeaseKeeper, WorkExecutor
from speciate.schema.candidates import CandidateDetail
from speciate.schema.runs import WorkerProcess
from speciate.settings import Settings, load_settings
from speciate.storage.metrics.counters import WORK, WORK_SECONDS, WorkerCounters
from speciate.storage.stores import Stores, open_stores
from speciate.storage.work.fairness import FairQueue
from workers.metrics import CountedEvaluator, CountedPolicy


@cache
def settings() -> Settings:
    return load_settings()


@cache
def stores() -> Stores:
    """Return the stores of this process; never call it before a pool forks: connections do not survive a fork."""
    return open_stores(settings(), pool_size=2 * (settings().generate_slots + 2))


def leave_connections() -> None:
    """In a new pool process: give up the connections of the main process.

    The pool forks before the main process has any, but a process that replaces a lost one inherits them.
    """
    if stores.cache_info().currsize:
        for engine in (stores().engine, stores().direct):
            engine.dispose(close=False)


class UnitWorker:
    """Executes work units in this process, which must not fork afterwards."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        evaluator: EvaluatorClient,
        learner_for: Callable[[], Learner] | None = None,
    ) -> None:
        self._stores, self._evaluator = stores, evaluator
        self._active = ActiveEvaluations(stores.redis, expiry_s=settings.lease_s)
        self.counters = WorkerCounters(stores.redis)
        self.keeper = LeaseKeeper(self._extend, interval_s=settings.lease_s / 3)
        self.executor = WorkExecutor(
            work=stores.work,
            signals=stores.signals,
            evaluator=CountedEvaluator(evaluator, self.counters),
            client_for=ClientPool(
                ClientContext.of(settings, stores.policy_keys.open), partial(CountedPolicy, counters=self.counters)
            ),
            keep=self._keep,
            count=self._count,
            learner_for=learner_for,
        )

    def replay(self, candidate: CandidateDetail) -> None:
        """Score a candidate again without changing its run, and store the result for its page."""
        context = self._stores.work.context(candidate.run_id)
        evaluate = partial(replay_evaluation, context, candidate, self._stores.work, self._evaluator)
        ReplayQueue(self._stores.redis, self._stores.celery).perform(candidate, context.problem.space.names, evaluate)

    def check_seed(self, key: str, name: str, can: Callable[[Problem], bool]) -> None:
        """Score the seed program of a problem for the request that waits for it; see ``SeedChecks.perform``."""
        SeedChecks(self._stores.redis, self._stores.celery).perform(key, self._evaluator, worker=name, can=can)

    @contextmanager
    def _keep(self, lease: Lease) -> Iterator[None]:
        """Renew a lease while its work is in progress, and list it if it is a long evaluation."""
        with self.keeper.keep(lease), self._active.track(lease):
            yield

    def _extend(self, lease: Lease) -> bool:
        self._active.renew(lease)
        return self._stores.work.extend(lease)

    def _count(self, lease: Lease, result: str, seconds: float) -> None:
        self.counters.add(WORK, lease.kind.value, result)
        self.counters.observe(WORK_SECONDS, lease.kind.value, values=[seconds])


@cache
def evaluator() -> SandboxEvaluator:
    """Return the evaluator; its tier is chosen before a pool forks, each child warms its own zygotes."""
    return open_evaluator(settings().sandbox, settings())


def remove_files() -> None:
    """Before this process exits: remove the files that it wrote for candidates."""
    if evaluator.cache_info().currsize:
        evaluator().leave()


@cache
def core_slots() -> CoreSlots:
    """Return the slots of this worker; like ``evaluator``, shared by the processes of a pool that forks later."""
    return CoreSlots(settings().slots)


class LazyEvaluator:
    """The evaluator of this process, opened by its first evaluation: generate workers never need one.

    An evaluation takes as many slots of the worker as its problem has cores.
    """

    @property
    def tier(self) -> str:
        return evaluator().tier

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        with core_slots().take(problem.limits.cores):
            return evaluator().evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)


@cache
def worker() -> UnitWorker:
    """Return the worker of this process; like ``stores``, never before a pool forks."""
    return UnitWorker(settings(), stores(), LazyEvaluator(), learner)


@cache
def learner() -> Learner:
    from speciate.training.learner import TorchLearner

    return TorchLearner(settings().checkpoints)


class EvaluateWorkers:
    """All workers that evaluate, read from Redis at most every few seconds; the last known ones while it is silent."""

    def __init__(self) -> None:
        self._present: tuple[WorkerProcess, ...] = ()
        self._until = 0.0

    def slots(self) -> int:
        return sum(worker.slots for worker in self._read())

    def can_evaluate(self, problem: Problem) -> bool:
        """Return True if one of them has the language of a problem."""
        return any(worker.runs(problem) for worker in self._read())

    def _read(self) -> tuple[WorkerProcess, ...]:
        if time.monotonic() >= self._until:
            self._until = time.monotonic() + ANNOUNCE_INTERVAL_S
            with suppress(redis.RedisError):
                present = present_workers(stores().redis)
                self._present = tuple(each for each in present if Queue.EVALUATE.value in each.queues)
        return self._present


@cache
def evaluate_workers() -> EvaluateWorkers:
    return EvaluateWorkers()


@cache
def fair_queue() -> FairQueue:
    return FairQueue(
        stores().engine,
        slots=evaluate_workers().slots,
        can=lambda run_id: evaluator().can_evaluate(stores().work.context(run_id).problem),
    )
