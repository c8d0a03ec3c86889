"""Progress of a run in scripts and notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Final

from speciate.domain.numbers import short_number
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.prompts.text import printable
from speciate.schema.runs import RunRecord

if TYPE_CHECKING:
    from speciate.evolution.task import Evolution

Show = Callable[[RunRecord], None]

_PLAIN_S: Final = 30.0


@contextmanager
def showing(evolution: Evolution, *, unread: Collection[str] = (), enabled: bool) -> Iterator[Show]:
    """Yield a function that shows a run: in a notebook, on a terminal, or as a line every 30 seconds."""
    if not enabled:
        yield lambda _: None
        return
    problem, lines = evolution.problem.problem, [f"note: {note}" for note in evolution.problem.notes]
    if evolution.continues:
        lines.append(f"Continues the paused run {evolution.run.id}; new=True starts anew.")
        if unread:
            lines.append(f"note: changes of what the function uses as {', '.join(sorted(unread))} cannot be seen")
    _say(*lines, f"run {evolution.run.id}")
    if "ipykernel" in sys.modules:
        display = import_module("IPython.display")
        cell = display.display(display.HTML(""), display_id=True)
        yield lambda run: cell.update(
            display.HTML(f"<progress value={run.share_spent}></progress> {escape(status(run, problem))}")
        )
        return
    if not sys.stderr.isatty():
        shown_at = time.monotonic()

        def show(run: RunRecord) -> None:
            nonlocal shown_at
            if run.state is not RunState.RUNNING or time.monotonic() - shown_at >= _PLAIN_S:
                _say(f"{run.share_spent:.0%}  {status(run, problem)}")
                shown_at = time.monotonic()

        yield show
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as line:
        yield lambda run: line.update(Text(f"{run.share_spent:.0%}  {status(run, problem)}"))


def _say(*lines: str) -> None:
    sys.stderr.writelines(f"{printable(line)}\n" for line in lines)


def status(run: RunRecord, problem: Problem) -> str:
    best = {} if run.best is None else run.best.rewards
    values = ", ".join(f"{o.directed} {short_number(best[o.name])}" for o in problem.space.selected if o.name in best)
    parts = (f"{run.spent.evaluations:,} evaluations", values, ", ".join(run.reached), run.alarm or "")
    return printable("  ".join(filter(None, parts)))
