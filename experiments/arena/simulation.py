"""One search on a simulated clock: requests take a latency, and evaluations wait for slots."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import numpy as np

import experiments.arena.rules  # noqa: F401 - adds its strategies
from experiments.arena.problems import InProcessEvaluator, problem_of
from experiments.arena.standins import StandIn, policy_of
from speciate.domain.arrays import FloatArray
from speciate.domain.budget import Budget
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.policies import build_client
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient
from speciate.ports.work import Commit, RunContext, WorkKind
from speciate.runs.executor import WorkExecutor
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore

_SPREAD = 0.3
"""Standard deviation of the logarithm of a latency."""


@dataclass(frozen=True, slots=True)
class Job:
    """A search to make: everything that its result depends on."""

    problem: str
    character: str
    strategy: str
    options: str  # options of the strategy, as JSON
    spec: str  # further fields of ``RunSpec``, as JSON
    budget: int
    seed: int
    latency_s: float = 1.0  # median seconds of a request
    slots: int = 2  # evaluations at once
    evaluation_s: float = 0.5


@dataclass(slots=True)
class Curve:
    """Result of a search: one value for each evaluation, in the order in which they ended."""

    best: list[float]  # the best ``score_of`` so far; -1 before the first
    coverage: list[float]  # E_w of the best wᵀr so far, w ~ Dir(1)
    seconds: list[float]  # simulated time
    tokens: int = 0


class SimulatedClock:
    """A ``CommitListener`` that orders work units by the time at which they start or end."""

    def __init__(self, job: Job, store: MemoryWorkStore) -> None:
        self.now = 0.0
        self._job, self._store = job, store
        self._heap: list[tuple[float, int, UUID]] = []
        self._count = 0
        self._free = [0.0] * job.slots
        self._rng = np.random.default_rng([job.seed, 77])

    def committed(self, commit: Commit) -> None:
        for ref in commit.dispatch:
            at = self.now
            if ref.kind is not WorkKind.GENERATE:
                at = self._evaluated_at(ref.id)
            heapq.heappush(self._heap, (at, self._count, ref.id))
            self._count += 1

    def pop(self) -> UUID | None:
        if not self._heap:
            return None
        self.now, _, unit = heapq.heappop(self._heap)
        return unit

    def _evaluated_at(self, unit: UUID) -> float:
        run = next(iter(self._store.runs.values()))
        payload = run.units[unit].new.payload
        programs = payload.get("proposals", [None])
        asked = any(proposal and proposal.get("role") not in ("seed", "polish", "repeat") for proposal in programs)
        arrival = self.now + asked * self._job.latency_s * float(np.exp(self._rng.normal(0, _SPREAD)))
        ends = []
        for _ in programs:
            start = max(arrival, heapq.heappop(self._free))
            heapq.heappush(self._free, start + self._job.evaluation_s)
            ends.append(start + self._job.evaluation_s)
        return max(ends)


@dataclass(slots=True)
class _Recorder:
    problem: Problem
    weights: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        k = len(self.problem.space.selected)
        self.weights = np.random.default_rng(0).dirichlet(np.ones(k), size=64 if k > 1 else 1)

    def curve(self, run: MemoryRun, ended: list[tuple[int, float]]) -> Curve:
        best, coverage, at = -1.0, np.zeros(len(self.weights)), dict(ended)
        curve = Curve([], [], [])
        for number in sorted(run.candidates, key=lambda number: (at[number], number)):
            rewards = run.candidates[number].evaluation.rewards
            if rewards is not None:
                best = max(best, score_of(self.problem, rewards))
                point = np.clip(self.problem.space.normalise([rewards])[0], 0.0, 1.0)
                coverage = np.maximum(coverage, self.weights @ point)
            curve.best.append(best)
            curve.coverage.append(float(coverage.mean()))
            curve.seconds.append(at[number])
        return curve


def score_of(problem: Problem, rewards: Sequence[float]) -> float:
    """Return the mean of the normalised objectives, higher is better; of an infeasible vector minus its violation."""
    violation = float(problem.space.violation([rewards])[0])
    if violation > 0:
        return -min(1.0, violation)
    return float(np.clip(problem.space.normalise([rewards])[0], -1.0, None).mean())


def searched(job: Job) -> Curve:
    """Make a search from its beginning to its end."""
    problem = problem_of(job.problem)
    run, ended, _ = simulated(job, problem, InProcessEvaluator(job.problem))
    return _Recorder(problem).curve(run, ended)


def simulated(
    job: Job, problem: Problem, evaluator: EvaluatorClient
) -> tuple[MemoryRun, list[tuple[int, float]], list[int]]:
    """Make a search.

    Returns:
        The run, the number of every candidate with the time at which it was evaluated, and the numbers of the best
        candidates one after the other.
    """
    policy, more = policy_of(job.character), json.loads(job.spec)
    spec = RunSpec(
        strategy=job.strategy,
        strategy_options=json.loads(job.options),
        budget=Budget(evaluations=job.budget),
        seed=job.seed,
        **more,
    )
    context = RunContext(uuid4(), problem, policy, uuid4(), spec)
    store = MemoryWorkStore()
    clock = SimulatedClock(job, store)
    clients: dict[str, PolicyClient] = {policy.slug: StandIn(job.character, job.problem)}

    def client_for(asked: Policy) -> PolicyClient:
        if asked.slug not in clients:
            clients[asked.slug] = build_client(asked)
        return clients[asked.slug]

    executor = WorkExecutor(store, clock, evaluator, client_for)
    store.add(context)
    clock.committed(store.start(context.run_id))
    run, ended, bests = store.runs[context.run_id], list[tuple[int, float]](), list[int]()
    while (unit := clock.pop()) is not None:
        before = set(run.candidates)
        run.progress.seconds = clock.now
        executor.execute(unit)
        ended += [(number, clock.now) for number in run.candidates.keys() - before]
        if (best := run.progress.best_number) is not None and bests[-1:] != [best]:
            bests.append(best)
    if run.progress.evaluations != job.budget:
        raise RuntimeError(f"{job} ended after {run.progress.evaluations} evaluations: {run.progress.reason}")
    return run, ended, bests
