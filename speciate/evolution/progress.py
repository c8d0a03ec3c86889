"""Progress of a run in scripts and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module

from speciate.domain.numbers import short_number
from speciate.domain.problem import Problem
from speciate.prompts.text import printable
from speciate.schema.runs import RunRecord

Show = Callable[[RunRecord], None]


@contextmanager
def showing(problem: Problem, *, enabled: bool) -> Iterator[Show]:
    """Yield a function that shows a run: in a notebook, on a terminal, or nowhere else."""
    if enabled and "ipykernel" in sys.modules:
        display = import_module("IPython.display")
        cell = display.display(display.HTML(""), display_id=True)
        yield lambda run: cell.update(
            display.HTML(f"<progress value={run.share_spent}></progress> {escape(status(run, problem))}")
        )
        return
    if not (enabled and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as line:
        yield lambda run: line.update(Text(f"{run.share_spent:.0%}  {status(run, problem)}"))


def status(run: RunRecord, problem: Problem) -> str:
    best = {} if run.best is None else run.best.rewards
    values = ", ".join(f"{o.directed} {short_number(best[o.name])}" for o in problem.space.selected if o.name in best)
    parts = (f"{run.spent.evaluations:,} evaluations", values, ", ".join(run.reached), run.alarm or "")
    return printable("  ".join(filter(None, parts)))
