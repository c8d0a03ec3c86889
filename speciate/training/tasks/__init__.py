"""Tasks that policies are trained and compared on, one file each: how problems are made, answered and scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.eureqa import open_eureqa
from speciate.training.tasks.livecodebench import open_livecodebench
from speciate.training.tasks.maze import MAZE, MAZE_PAPER
from speciate.training.tasks.musique import open_musique
from speciate.training.tasks.programs import PROGRAMS, PROGRAMS_HARD
from speciate.training.tasks.task import GeneratedTask, Split, Task
from speciate.training.tasks.toolrl import open_toolrl

GENERATED: Final[dict[str, GeneratedTask]] = {task.name: task for task in (MAZE, MAZE_PAPER, PROGRAMS, PROGRAMS_HARD)}
"""Tasks that make their own problems and grow policies from nothing, by name."""

DATASETS: Final[dict[str, Callable[[Path, EvaluatorClient | None], Task]]] = {
    "musique": open_musique,
    "eureqa": open_eureqa,
    "toolrl": open_toolrl,
    "livecodebench": open_livecodebench,
}
"""Tasks that read a public dataset from a folder of the user's, by name."""


def open_task(name: str, data: Path | None = None, evaluator: EvaluatorClient | None = None) -> Task:
    """Return a task.

    Args:
        name: Key of ``GENERATED`` or ``DATASETS``.
        data: Folder with the files of a dataset.
        evaluator: What scores answers to a dataset's problems; the caller closes it. Not needed to look at them.

    Raises:
        InvalidInputError: There is none of that name, or its files are missing or not what they should be; or it reads
            none.
    """
    if name in GENERATED:
        if data is not None:
            raise InvalidInputError(f"--data: task {name!r} makes its own problems.", remedy="Leave it out.")
        return GENERATED[name]
    if name not in DATASETS:
        raise InvalidInputError(f"no task is called {name!r}.", remedy=f"Tasks: {', '.join((*GENERATED, *DATASETS))}.")
    if data is None:
        raise InvalidInputError(
            f"task {name!r} reads a dataset.", remedy="Name the folder with its files with --data DIR."
        )
    return DATASETS[name](data, evaluator)


__all__ = ["DATASETS", "GENERATED", "GeneratedTask", "Split", "Task", "open_task"]
