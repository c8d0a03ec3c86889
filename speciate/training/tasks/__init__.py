"""Tasks that policies are trained and compared on; each module makes, demonstrates and scores problems."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.maze import MAZE, MAZE_PAPER
from speciate.training.tasks.programs import PROGRAMS, PROGRAMS_HARD
from speciate.training.tasks.python import PythonTask
from speciate.training.tasks.task import GeneratedTask, Split, Task, located, problems_of, scores_of

GENERATED: Final[dict[str, GeneratedTask]] = {task.name: task for task in (MAZE, MAZE_PAPER, PROGRAMS, PROGRAMS_HARD)}
"""Tasks that generate their problems and train policies from scratch, by name."""

SANDBOXED: Final[dict[str, Callable[[EvaluatorClient | None], Task]]] = {
    "python": PythonTask,
    "python-choices": ChoicesTask,
    "python-easy": partial(PythonTask, name="python-easy", most_steps=2),
}
"""Tasks that generate problems for language models, whose programs run in the sandbox, by name."""


def open_task(name: str, data: Path | None = None, evaluator: EvaluatorClient | None = None) -> Task:
    """Return a task by its name, or by ``module:function``, which is called with ``data`` and ``evaluator``.

    Without ``evaluator``, tasks that need one can only list their problems.
    """
    if ":" in name:
        module, _, function = name.partition(":")
        try:
            open_: Any = getattr(import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidInputError(
                f"task {name!r} cannot be imported: {error}.",
                remedy="Expected module:function, with the module's directory in PYTHONPATH.",
            ) from None
        if data is not None and not data.is_dir():
            raise InvalidInputError(f"--data {data}: expected a directory.")
        with located(f"task {name!r}, opened with {'no directory (--data)' if data is None else data}"):
            task: Task = open_(data, evaluator)
        if missing := sorted(name for name in vars(Task) if not name.startswith("_") and not hasattr(task, name)):
            raise InvalidInputError(
                f"task {name!r} returned {type(task).__name__}, which has no {', '.join(missing)}.",
                remedy="Expected a task: docs/howto/train-on-your-data.md has one.",
            )
        return task
    if name not in GENERATED and name not in SANDBOXED:
        names = (*GENERATED, *SANDBOXED)
        remedy = did_you_mean(name, names) or f"Tasks: {', '.join(names)}, or module:function."
        raise InvalidInputError(f"no task is called {name!r}.", remedy=remedy)
    if data is not None:
        raise InvalidInputError(f"--data: task {name!r} generates its problems.", remedy="Remove the option.")
    return GENERATED[name] if name in GENERATED else SANDBOXED[name](evaluator)


__all__ = ["GENERATED", "SANDBOXED", "GeneratedTask", "Split", "Task", "open_task", "problems_of", "scores_of"]
