"""``python -m benchmarks.stacks [package …]``: compute with each package in tiers A and B, and print a table.

The packages are installed as the ``requirements`` of a problem are, into a folder that the next call finds again.
Exits with code 1 if a computation fails.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.stacks.computations import COMPUTATIONS, Computation
from evaluators.environments import EnvironmentStore
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem

_STORE = Path(tempfile.gettempdir()) / "speciate-stacks"
_TIME = {"wall_s": 60, "cpu_s": 120}
_REPEATS = 5
_MS, _MIB = 1e3, 1 << 20


def problem_of(which: Computation, *, installed: bool, preload: bool, cores: int = 1) -> Problem:
    """Return a problem whose only case is a computation.

    Args:
        which: The computation.
        installed: True to use the worker's packages.
        preload: True to import the package before the program runs.
        cores: Threads of libraries.
    """
    fields: dict[str, Any] = {
        "slug": "stack",
        "title": "Stack",
        "kind": "cases",
        "objectives": [{"name": "right"}],
        "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}],
        "cases": [{"input": [], "expected": which.expected, "tolerance": 1e-3}],
        "limits": {**_TIME, "cores": cores, **which.limits},
        "preload": [which.module] if preload else [],
        "requirements": [] if installed else which.requirements,
    }
    return Problem.model_validate(fields)


def _row(
    name: str, which: Computation, sandboxes: dict[str, SandboxEvaluator], store: EnvironmentStore
) -> tuple[list[str], bool]:
    began = time.monotonic()
    with store.use(which.requirements):
        built_s = time.monotonic() - began
    cells, right, peak = [name, f"{built_s:.1f} s"], True, 0
    for tier, preload, cores in (("A", False, 1), ("A", True, 1), ("A", False, 4), ("B", False, 1)):
        if which.writes and tier == "B":
            cells.append("–")
            continue
        problem = problem_of(which, installed=False, preload=preload, cores=cores)
        found = sandboxes[tier].evaluate(problem, [which.program] * _REPEATS, seeds=range(_REPEATS))
        right &= all(each.rewards == (1.0,) for each in found)
        peak = max(peak, *(each.memory_bytes for each in found))
        cells.append(_cell(found))
    return [*cells, str(peak // _MIB)], right


def _cell(found: list[Evaluation]) -> str:
    for each in found:
        if each.failure is not None:
            return f"{each.failure.kind.value}: {each.failure.reason}"
        if each.rewards != (1.0,):
            return f"wrong: {each.artifacts.get('cases', '')}"
    return f"{statistics.median(each.wall_s for each in found) * _MS:.0f} ms"


def main(names: list[str]) -> int:
    """Print the table; return 1 if a computation fails."""
    store = EnvironmentStore(_STORE)
    sandboxes = {tier: SandboxEvaluator(tier, environments=store) for tier in "AB"}
    columns = ("package", "build", "A, late", "A, warm", "A, late, 4 cores", "B, late", "MiB")
    sys.stdout.write(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
    failed = False
    try:
        for name in names or COMPUTATIONS:
            cells, right = _row(name, COMPUTATIONS[name], sandboxes, store)
            failed |= not right
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()
    finally:
        for sandbox in sandboxes.values():
            sandbox.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
