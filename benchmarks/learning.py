"""Cost of learning: processor time of a step, and of booking groups, versions and tokens beside it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any
from uuid import UUID

from benchmarks.figures import Figure, record
from benchmarks.parts import median, processor_seconds, service_pids, show
from speciate.cli.local_service import LocalService
from speciate.domain.run import RunSpec
from speciate.policies.bundled import bundled_policies
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores
from speciate.training.tasks import GENERATED, Split

EVALUATIONS = 768
WARM_UP = 256
REPEATS = 3
REST_S = 10.0
GROUPS = 8
# So small that all versions write what the base writes: the two runs do the same work.
_LEARNING: dict[str, Any] = {"groups": GROUPS, "learning_rate": 1e-12, "staleness": 1}


@dataclass(frozen=True)
class _Measured:
    """A run.

    Attributes:
        per_second: Answers per second.
        beside_ms: Processor milliseconds per answer of all processes but the learn worker, beyond the service at rest.
        steps: Steps.
        step_s: Processor seconds of the learn worker per step.
        share: Share of the running time in which a step was in progress.
    """

    per_second: float
    beside_ms: float
    steps: int
    step_s: float
    share: float


class _Bench:
    """A service with a learn worker."""

    def __init__(self, stack: LocalService, stores: Stores) -> None:
        self._stack, self._stores = stack, stores
        (problem,) = GENERATED["maze"].problems(Split.TEST, 1)
        never = problem.targets[0].model_copy(update={"name": "never", "rule": "gold >= 2", "unlock": True})
        self._problem, _ = stores.catalog.add_problem(problem.model_copy(update={"targets": (never,)}))
        base = next(policy for policy in bundled_policies() if policy.slug == "maze-base")
        self._policy, _ = stores.catalog.add_policy(base)
        self._at_rest = 0.0  # processor seconds per second: a learning run takes longer, and is charged for none of it

    def rest(self) -> None:
        """Measure the processor time of the service at rest."""
        _, before = self._processor_seconds()
        sleep(REST_S)
        self._at_rest = (self._processor_seconds()[1] - before) / REST_S

    def measure(self, evaluations: int, seed: int, learning: dict[str, Any] | None) -> _Measured:
        learner, others = self._processor_seconds()
        at = perf_counter()
        run_id = self._run(evaluations, seed, learning)
        seconds = perf_counter() - at
        learned, beside = self._processor_seconds()
        found = self._stores.runs.get(run_id).learning
        steps = 0 if found is None else found.step
        return _Measured(
            evaluations / seconds,
            (beside - others - self._at_rest * seconds) / evaluations * 1000,
            steps,
            (learned - learner) / steps if steps else 0.0,
            0.0 if found is None else found.seconds / seconds,
        )

    def _processor_seconds(self) -> tuple[float, float]:
        learner = self._stack.poll()["learn"].pid
        return processor_seconds([learner]), processor_seconds(p for p in service_pids(self._stack) if p != learner)

    def _run(self, evaluations: int, seed: int, learning: dict[str, Any] | None) -> UUID:
        spec = RunSpec.model_validate(
            {
                "budget": {"evaluations": evaluations},
                "strategy": "best_of_n",
                "samples_per_prompt": 8,
                "batch": 32,
                "lanes": 4,
                "seed": seed,
                "learning": learning,
            }
        )
        run_id, _ = start_run(
            self._stores.runs,
            self._stores.signals,
            prepare_run(self._stores.runs, problem=self._problem, policies=RunPolicies(self._policy), spec=spec),
        )
        while not (record_ := self._stores.runs.get(run_id)).state.ended:
            if record_.state.value == "paused":
                raise RuntimeError(f"the run is paused: {record_.reason}")
            sleep(0.05)
        return run_id


def run(settings: Settings) -> None:
    """Measure frozen and learning runs in turn, of the same seeds, and print the table."""
    frozen: list[_Measured] = []
    learning: list[_Measured] = []
    with LocalService(settings, learns=True) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        bench = _Bench(stack, stores)
        for options in (None, _LEARNING):
            bench.measure(WARM_UP, 99, options)
        bench.rest()
        for seed in range(REPEATS):
            frozen.append(bench.measure(EVALUATIONS, seed, None))
            learning.append(bench.measure(EVALUATIONS, seed, _LEARNING))
        stores.close()
    ratios = [a.beside_ms / b.beside_ms - 1 for a, b in zip(learning, frozen, strict=True)]
    step = median([m.step_s for m in learning])
    record("learning: beside the step", Figure(100 * median(ratios), "%", 25, scales=False))
    record("learning: a step of 8 × 8", Figure(step, "s CPU", 3))
    rows = [
        (
            name,
            median([m.per_second for m in each]),
            median([m.beside_ms for m in each]),
            median([float(m.steps) for m in each]),
            median([m.step_s for m in each]),
            median([100 * m.share for m in each]),
        )
        for name, each in (("frozen", frozen), ("learning", learning))
    ]
    show(
        f"Learning: {EVALUATIONS} answers of maze-base, steps of {GROUPS} groups of 8, median of {REPEATS}",
        ["", "answers/s", "CPU ms/answer beside the step", "steps", "CPU s/step", "% of the time in steps"],
        rows,
        f"More processor time beside the step, run by run: {', '.join(f'{100 * r:.0f} %' for r in ratios)}"
        " (goals: 25 %, 3 s).",
    )
