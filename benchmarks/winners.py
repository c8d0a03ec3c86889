"""Runs with target cells and without them, paired by problem and seed: do archives keep what meets a target?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.evidence import MUTATOR, Found, Job, gather
from benchmarks.parts import show
from speciate.problems.loader import bundled
from speciate.settings import Settings
from speciate.tournaments.statistics.significance import sign_flips

STRATEGIES: Final = ("islands_map_elites", "vector_evolution", "mind_evolution", "sequential_revision")
SEEDS: Final = range(100, 102)
"""Seeds that no earlier comparison has used; declared before the runs."""
BUDGET: Final = 640
SLOW: Final = {"online-bin-packing": 4}
"""Problems with slow evaluators, by the part of the budget that they get."""
TASKS: Final = (
    ("programs", range(9000, 9060), ("programs-vpo", "programs-base")),
    ("maze", range(50_000, 50_040), ("maze-vpo", "maze-base")),
)
"""Held-out problems: task, numbers in the test split, proposer and mutator."""
TASK_BUDGET: Final = 180
_DRAWS: Final = 100_000


def run(_: Settings, keep: Path, workers: int) -> None:
    """Show, for the bundled problems and for held-out problems of tasks, what target cells change."""
    for name in STRATEGIES:
        jobs = [
            Job(slug, MUTATOR, MUTATOR, name, BUDGET // SLOW.get(slug, 1), seed) for slug in bundled() for seed in SEEDS
        ]
        _show(
            name, f"{len(bundled())} bundled problems x {len(SEEDS)} seeds, {BUDGET} evaluations", jobs, keep, workers
        )
    for task, numbers, (proposer, mutator) in TASKS:
        for name in STRATEGIES[:2]:
            jobs = [Job(f"{task}:{number}", proposer, mutator, name, TASK_BUDGET, 0) for number in numbers]
            title = f"{len(numbers)} held-out {task}, {proposer} with {mutator}, {TASK_BUDGET} evaluations"
            _show(name, title, jobs, keep, workers)


def _show(strategy: str, title: str, jobs: Sequence[Job], keep: Path, workers: int) -> None:
    plain = [replace(job, target_cells=False) for job in jobs]
    found = gather([*plain, *jobs], keep, workers, f"{strategy}, {title}")
    before, after = found[: len(jobs)], found[len(jobs) :]
    rows = [_row("without target cells", plain, before), _row("with target cells", jobs, after)]
    met = [np.array([[at is not None for at in one.reached] for one in runs], dtype=object) for runs in (before, after)]
    rates = [np.array([np.mean(list(row)) for row in side]) for side in met]
    problems = np.array([job.problem for job in jobs])
    changes = np.array([(rates[1] - rates[0])[problems == name].mean() for name in dict.fromkeys(problems)])
    (test,) = sign_flips([changes], np.random.default_rng(0), _DRAWS)
    better, worse = int((rates[1] > rates[0]).sum()), int((rates[1] < rates[0]).sum())
    sooner, later = _sooner(before, after)
    show(
        f"{strategy}: {title}",
        ["", "targets met", "of runs with a met target, archive keeps it", "evaluations to the hardest target, median"],
        rows,
        f"runs with more targets {better}, with fewer {worse}; by problems p = {test.p_value:.2g};"
        f" hardest target that both met: sooner {sooner}, later {later}",
    )


def _row(label: str, jobs: Sequence[Job], runs: Sequence[Found]) -> list[object]:
    winners = [one for one in runs if any(at is not None for at in one.reached)]
    kept = sum(all(k for k, at in zip(one.kept, one.reached, strict=True) if at is not None) for one in winners)
    hardest = [max(at for at in one.reached if at is not None) for one in winners]
    targets = sum(at is not None for one in runs for at in one.reached)
    total = sum(len(one.reached) for one in runs)
    return [label, f"{targets} of {total}", f"{kept} of {len(winners)}", float(np.median(hardest)) if hardest else 0.0]


def _sooner(before: Sequence[Found], after: Sequence[Found]) -> tuple[int, int]:
    """Count the pairs in which the hardest target that both runs met was met sooner, and later."""
    sooner = later = 0
    for old, new in zip(before, after, strict=True):
        both = [(a, b) for a, b in zip(old.reached, new.reached, strict=True) if a is not None and b is not None]
        if both:
            sooner += both[-1][1] < both[-1][0]
            later += both[-1][1] > both[-1][0]
    return sooner, later
