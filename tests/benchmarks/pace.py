"""Cost of growing batches for the search: paired runs at equal evaluations, in the worst case.

Declared before the first run: problems and constants of ``floor``, `program_mutator`, 4 lanes, 2,048 evaluations, seeds
1 to 12; batches of 16 against batches that grow as fast as the rule of ADR 56 allows, as if every batch took no time.
Measured: the best value at the end, and its mean over the evaluations. A loss is an interval below zero.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final
from uuid import uuid4

import numpy as np
from scipy.stats import t as student

from speciate.domain.budget import Budget
from speciate.domain.policy import Policy
from speciate.domain.run import FIRST_BATCH, RunSpec
from speciate.policies import build_client
from speciate.ports.work import Commit, EvaluatedBatch, Lease, RunContext
from speciate.problems.loader import known_problems, load_problem
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.settings import Settings
from speciate.storage.work.memory import MemoryWorkStore
from tests.benchmarks.floor import PROBLEMS, InProcessEvaluator, program_of, sign_of
from tests.benchmarks.parts import CONSOLE, show
from tests.support.script_evaluators import evaluator_in

EVALUATIONS: Final = 2048
SEEDS: Final = range(1, 13)
STRATEGIES: Final = ("islands_map_elites", "vector_evolution")


class _Instant(MemoryWorkStore):
    """Counts no time for any batch."""

    def record_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> Commit | None:
        return super().record_evaluations(lease, replace(batch, seconds=0.0))


def run(_: Settings) -> None:
    """Search with both and print the paired differences."""
    rows = []
    for strategy in STRATEGIES:
        for slug in PROBLEMS:
            pairs = np.array(
                [[_searched(slug, strategy, seed, size) for size in (FIRST_BATCH, None)] for seed in SEEDS]
            )
            for name, measured in (("best", pairs[:, :, 0]), ("mean of the best", pairs[:, :, 1])):
                gains = measured[:, 1] - measured[:, 0]
                half = float(student.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains)))
                low, high = gains.mean() - half, gains.mean() + half
                means = (f"{mean:.5g}" for mean in np.abs(measured.mean(axis=0)))
                rows.append((strategy, slug, name, *means, f"[{low:+.2g}, {high:+.2g}]"))
            CONSOLE.print(strategy, slug, "done")
    show(
        f"Batches that grow: {len(SEEDS)} seeds, {EVALUATIONS:,} evaluations",
        ["strategy", "problem", "value", "batch 16", "growing", "gain, 95 %"],
        rows,
        "gain: paired, positive is better",
    )


def _searched(slug: str, strategy: str, seed: int, size: int | None) -> tuple[float, float]:
    """Return the best value and its mean over the evaluations; higher is better."""
    start = np.random.default_rng(seed).random(PROBLEMS[slug])
    problem = load_problem(known_problems()[slug]).model_copy(update={"seed_program": program_of(slug, start)})
    policy = Policy(slug="program-mutator", kind="program_mutator")
    spec = RunSpec(strategy=strategy, budget=Budget(evaluations=EVALUATIONS), seed=seed, batch=size)
    context = RunContext(uuid4(), problem, policy, uuid4(), spec, policy, uuid4())
    store, signals, client = _Instant(), LocalQueue(), build_client(policy)
    store.add(context)
    signals.committed(store.start(context.run_id))
    evaluator = InProcessEvaluator(evaluator_in(known_problems()[slug]))
    drain(WorkExecutor(store, signals, evaluator, lambda _: client), signals)
    found = [c.outcome.evaluation.rewards for _, c in sorted(store.runs[context.run_id].candidates.items())]
    valid = [-sign_of(problem) * r[0] if r and problem.space.violation([r])[0] <= 0 else -math.inf for r in found]
    best = np.maximum.accumulate(valid)
    return float(best[-1]), float(best[np.isfinite(best)].mean())
