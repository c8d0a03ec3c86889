"""Tasks that policies are trained and compared on; each module makes, demonstrates and scores problems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks import eureqa, livecodebench, musique, toolrl
from speciate.training.tasks.datasets import Dataset, DatasetTask
from speciate.training.tasks.maze import MAZE, MAZE_PAPER
from speciate.training.tasks.programs import PROGRAMS, PROGRAMS_HARD
from speciate.training.tasks.python import PythonTask
from speciate.training.tasks.task import GeneratedTask, Split, Task

GENERATED: Final[dict[str, GeneratedTask]] = {task.name: task for task in (MAZE, MAZE_PAPER, PROGRAMS, PROGRAMS_HARD)}
"""Tasks that generate their problems and train policies from scratch, by name."""

DATASETS: Final = {
    "musique": Dataset(tuple(musique.WEIGHTS), 512, musique.read_problems),
    "eureqa": Dataset(tuple(eureqa.WEIGHTS), 512, eureqa.read_problems),
    "toolrl": Dataset(tuple(toolrl.WEIGHTS), 1024, toolrl.read_problems),
    "livecodebench": Dataset(livecodebench.REWARDS, 2048, livecodebench.read_problems),
}
"""Tasks that read a public dataset from a user's folder, by name."""


SANDBOXED: Final[dict[str, Callable[[EvaluatorClient | None], Task]]] = {
    "python": PythonTask,
    "python-easy": partial(PythonTask, name="python-easy", most_steps=2),
}
"""Tasks that generate problems for language models, whose programs run in the sandbox, by name."""


def open_task(name: str, data: Path | None = None, evaluator: EvaluatorClient | None = None) -> Task:
    """Return a task. Without ``evaluator``, tasks that need one can only list their problems."""
    if name in GENERATED or name in SANDBOXED:
        if data is not None:
            raise InvalidInputError(f"--data: task {name!r} generates its problems.", remedy="Remove the option.")
        return GENERATED[name] if name in GENERATED else SANDBOXED[name](evaluator)
    if name not in DATASETS:
        names = (*GENERATED, *SANDBOXED, *DATASETS)
        remedy = did_you_mean(name, names) or f"Tasks: {', '.join(names)}."
        raise InvalidInputError(f"no task is called {name!r}.", remedy=remedy)
    if data is None:
        raise InvalidInputError(
            f"task {name!r} reads a dataset.", remedy="Pass the folder with its files as --data DIR."
        )
    return DatasetTask.read(name, DATASETS[name], data, evaluator)


__all__ = ["DATASETS", "GENERATED", "SANDBOXED", "GeneratedTask", "Split", "Task", "open_task"]
