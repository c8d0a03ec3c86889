"""What a peer's driver is told, and what a run cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from experiments.door.declaration import EVALUATIONS, WORKERS, Task
from experiments.door.endpoint import Endpoint
from experiments.door.measure import Sample
from speciate.problems.loader import load_problem
from speciate.runs.engines import ends_of

_TIMEOUT_S: Final = 20
_TEMPERATURE: Final = 0.8


def configuration(task: Task, endpoint: Endpoint, home: Path) -> dict[str, Any]:
    """Return the values of a run for its driver."""
    problem = load_problem(task.folder)
    initial = home / "initial.py"
    initial.write_text(problem.seed_program, encoding="utf-8")
    return {
        "problem": str(task.folder),
        "files": problem.files,
        "description": problem.description,
        "objectives": ends_of(problem),
        "initial": str(initial),
        "output": str(home / "output"),
        "log": str(home / "evaluations.jsonl"),
        "url": endpoint.url_for(task),
        "model": endpoint.model,
        "temperature": _TEMPERATURE,
        "seed": task.seed,
        "evaluations": EVALUATIONS,
        "workers": WORKERS,
        "timeout_s": _TIMEOUT_S,
    }


def costs(samples: Sequence[Sample]) -> tuple[float, int]:
    """Return processor seconds from the first evaluation on, so that the start is left out, and largest memory."""
    first = next((s for s in samples if s.evaluations), samples[-1])
    last = next((s for s in samples if s.evaluations == samples[-1].evaluations), samples[-1])
    return last.processor_s - first.processor_s, max(s.memory for s in samples)
