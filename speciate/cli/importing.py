"""Submitting the problems of a task, and freezing them as a set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speciate.cli import output
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.ports.records import ProblemSet


def import_task(
    service: Client,
    name: str,
    split: str,
    count: int,
    *,
    start: int = 0,
    data: Path | None = None,
    into: str | None = None,
) -> ProblemSet:
    """Submit problems of a task and return the set of them.

    Args:
        service: Where to.
        name: The task.
        split: ``train`` or ``test``.
        count: How many.
        start: Number of the first.
        data: Folder of a dataset.
        into: Name of the set.

    Raises:
        InvalidInputError: There is no such task or split.
        ConflictError: A set of that name holds other problems.
    """
    from rich.progress import track

    from speciate.training.tasks import Split, open_task

    if split not in tuple(Split):
        raise InvalidInputError(f"there is no split {split!r}.", remedy=f"Splits: {', '.join(Split)}.")
    problems = open_task(name, data).problems(Split(split), count, start=start)
    slug = into or f"{name}-{split}-{start}-{start + count - 1}"
    console = output.console(stderr=True)
    shown = track(problems, f"Submitting {slug}", total=count, console=console, disable=not console.is_terminal)
    added = [str(service.problems.add(problem).id) for problem in shown]
    try:
        known = service.problem_sets.get(slug)
    except NotFoundError:
        return service.problem_sets.create(
            slug, added, title=f"{output.many(count, 'problem')} of task {name}, {split}"
        )
    if [str(problem.id) for problem in known.problems] != added:
        raise ConflictError(f"the set {slug!r} holds other problems.", remedy="Choose another name with --into.")
    return known
