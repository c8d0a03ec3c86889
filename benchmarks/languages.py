"""Cost of an evaluation of a compiled program: built, from the compile cache, and without a build (Python)."""

from __future__ import annotations

import itertools
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.parts import CONSOLE, median, show
from evaluators.build_cache import BuildCache
from evaluators.evaluator import SandboxEvaluator
from evaluators.evaluator_factory import open_toolchains
from speciate.domain.known_languages import KNOWN
from speciate.domain.problem import Problem
from speciate.settings import Settings

ROUNDS = 9
_PROGRAMS = {
    "c": '#include <stdio.h>\nint main() { long x; scanf("%ld", &x); printf("%ld", 2 * x); }\n// NUMBER\n',
    "cpp": "#include <iostream>\nint main() { long x; std::cin >> x; std::cout << 2 * x; }\n// NUMBER\n",
    "fortran": "program double\ninteger :: x\nread *, x\nprint '(I0)', 2 * x\nend program\n! NUMBER\n",
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { var x int; fmt.Scan(&x); fmt.Print(2 * x) }\n\n// NUMBER\n',
    "rust": (
        "fn main() {\n    let mut line = String::new();\n    std::io::stdin().read_line(&mut line).unwrap();\n"
        '    print!("{}", 2 * line.trim().parse::<i64>().unwrap());\n}\n// NUMBER\n'
    ),
}
"""Programs that print the double of a number; each number makes another source."""

_PYTHON = "import sys\nprint(2 * int(sys.stdin.read()))\n# NUMBER\n"


def run(settings: Settings) -> None:
    """Time one evaluation with one call: the first of a source, and the second."""
    with (
        tempfile.TemporaryDirectory(prefix="speciate-bench-") as folder,
        closing(
            SandboxEvaluator("A", toolchains=open_toolchains(settings), builds=BuildCache(Path(folder, "builds")))
        ) as sandbox,
    ):
        rows = [row for key in _PROGRAMS if (row := _measure(sandbox, key)) is not None]
        python = _problem({"name": "Python", "file": "main.py", "run": ["python3", "main.py"]})
        bare = [_evaluate(sandbox, python, _PYTHON.replace("NUMBER", str(i))) for i in range(ROUNDS)]
    show(
        f"Compiled candidates in tier A, one call; {ROUNDS} rounds",
        ["", "miss: built, ms", "hit, ms", "hit / miss"],
        rows,
        f"A program that is not built (python3 as a command) takes {median(bare):.0f} ms.",
    )
    if missing := sorted(KNOWN[key].name for key in _PROGRAMS if KNOWN[key].name not in {row[0] for row in rows}):
        CONSOLE.print(f"Not on this machine: {', '.join(missing)}.")


def _measure(sandbox: SandboxEvaluator, key: str) -> tuple[str, float, float, float] | None:
    problem = _problem(key)
    if not sandbox.can_evaluate(problem):
        return None
    numbers = itertools.count()
    _evaluate(sandbox, problem, _PROGRAMS[key])  # reads the compiler from the disk
    misses, hits = [], []
    for _ in range(ROUNDS):
        program = _PROGRAMS[key].replace("NUMBER", str(next(numbers)))
        misses.append(_evaluate(sandbox, problem, program))
        hits.append(_evaluate(sandbox, problem, program))
    return KNOWN[key].name, median(misses), median(hits), median(hits) / median(misses)


def _evaluate(sandbox: SandboxEvaluator, problem: Problem, program: str) -> float:
    begin = time.perf_counter()
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
    if evaluation.rewards != (1.0,):
        raise RuntimeError(f"{problem.language}: {evaluation.failure}")
    return (time.perf_counter() - begin) * 1000


def _problem(language: object) -> Problem:
    return Problem.model_validate(
        {
            "slug": "doubling",
            "title": "Doubling",
            "kind": "cases",
            "objectives": [{"name": "right"}],
            "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}],
            "cases": [{"input": ["21"], "expected": "42"}],
            "limits": {"wall_s": 30, "cpu_s": 30},
            "language": language,
        }
    )
