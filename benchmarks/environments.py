"""Cost of the packages of a problem: first evaluation in a new environment, in a new worker, and warm, by package."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.parts import median, show
from benchmarks.stacks.__main__ import problem_of
from benchmarks.stacks.computations import COMPUTATIONS, Computation
from evaluators.environments import EnvironmentStore
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem
from speciate.settings import Settings

PACKAGES = ("numpy", "torch", "jax")
WARM, LATE = 9, 3


def run(_: Settings) -> None:
    """Time the computations of ``benchmarks.stacks`` in tier A, from an empty folder of environments."""
    with tempfile.TemporaryDirectory(prefix="speciate-bench-") as folder:
        rows = [_measure(Path(folder, name), name, COMPUTATIONS[name]) for name in PACKAGES]
    show(
        "Evaluations with packages of the problem in tier A, seconds",
        ["", "first in a new environment", "of it pip", "first of a worker", "warm", "imported late", "warm / late"],
        rows,
        f"Warm: the module is in `preload`; medians of {WARM} and {LATE}. pip installs from its cache or the network.",
    )


def _measure(folder: Path, name: str, which: Computation) -> tuple[str | float, ...]:
    warm = problem_of(which, installed=False, preload=True)
    late = problem_of(which, installed=False, preload=False)
    store = EnvironmentStore(folder)
    with closing(SandboxEvaluator("A", environments=store)) as sandbox:
        began = time.perf_counter()
        with store.use(which.requirements):
            pip_s = time.perf_counter() - began
        first_s = pip_s + _evaluate(sandbox, warm, which.program)
    with closing(SandboxEvaluator("A", environments=EnvironmentStore(folder))) as sandbox:
        worker_s = _evaluate(sandbox, warm, which.program)
        spent = [_evaluate(sandbox, warm, which.program) for _ in range(WARM)]
        late_s = [_evaluate(sandbox, late, which.program) for _ in range(LATE)]
    return name, first_s, pip_s, worker_s, median(spent), median(late_s), median(spent) / median(late_s)


def _evaluate(sandbox: SandboxEvaluator, problem: Problem, program: str) -> float:
    began = time.perf_counter()
    (found,) = sandbox.evaluate(problem, [program], seeds=[0])
    if found.rewards != (1.0,):
        raise RuntimeError(f"{problem.requirements}: {found.failure}")
    return time.perf_counter() - began
