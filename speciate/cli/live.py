"""How a run looks while it is watched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from speciate.cli.output import clean, many, number
from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.ports.records.runs import EventRecord, RunRecord

_STYLES: Final[dict[RunState, str]] = {
    RunState.RUNNING: "cyan",
    RunState.COMPLETED: "green",
    RunState.PAUSED: "yellow",
    RunState.FAILED: "red",
}
_BAR_WIDTH: Final = 40


def headline(run: RunRecord) -> str:
    """Return name, state, spending and the time left in one line."""
    budget, spent = run.spec.budget, run.spent
    parts = [_spent(spent.evaluations, budget.evaluations, "evaluations")]
    if spent.tokens or budget.tokens:
        parts.append(_spent(spent.tokens, budget.tokens, "tokens"))
    parts.append(_spent(round(spent.seconds, 1), budget.seconds, "s"))
    if (left := run.seconds_to_go) is not None:
        parts.append(f"about {timedelta(seconds=round(left))} to go")
    parts.append(f"{run.failed:,} failed, {run.duplicates:,} duplicates")
    name = f"{run.name}: " if run.name else ""
    return clean(f"{name}{run.state.value}: {'  '.join(parts)}")


def best_lines(run: RunRecord, seed: dict[str, float], names: Mapping[str, str]) -> list[str]:
    """Return the best value of every objective with its change since the seed, one a line.

    Args:
        run: The run.
        seed: Rewards of its seed program by objective.
        names: How objectives are shown.
    """
    width = max((len(names[name]) for name in run.best), default=0)
    return [
        clean(f"best {names[name]:<{width}}  {value:<12.6g} {change(value, seed.get(name))}".rstrip())
        for name, value in run.best.items()
    ]


def change(value: float, seed: float | None) -> str:
    """Return by how much a value differs from the seed's; nothing when it does not or there is none."""
    return "" if seed is None or value == seed else f"{value - seed:+.6g} since the seed"


def picture(run: RunRecord, seed: dict[str, float], names: Mapping[str, str]) -> RenderableType:
    """Return the progress of a run as it is drawn on a terminal; the arguments are those of ``best_lines``."""
    head = Text(f"{run.problem}@{run.problem_version}", style="bold").append(
        f"  {run.policy}@{run.policy_version}  {run.spec.strategy}  {run.id}", style="dim"
    )
    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(total=1.0, completed=run.share_spent, width=_BAR_WIDTH), Text(headline(run)))
    best = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("objective", "best", "since the seed"):
        best.add_column(name, justify="left" if name == "objective" else "right")
    for name, value in run.best.items():
        moved = "" if name not in seed or value == seed[name] else f"{value - seed[name]:+.6g}"
        best.add_row(Text(clean(names[name])), Text(number(value)), Text(moved, style="green"))
    parts: list[RenderableType] = [head, bar, *([best] if run.best else [])]
    if run.reached:
        parts.append(Text(f"reached: {clean(', '.join(run.reached))}", style="green"))
    if run.alarm:
        parts.append(Text(f"alarm: {clean(run.alarm)}", style="bold red"))
    if run.state is not RunState.RUNNING:
        reason = f": {clean(run.reason)}" if run.reason else ""
        parts.append(Text(f"{run.state.value}{reason}", style=_STYLES.get(run.state, "")))
    return Group(*parts)


def telling(event: EventRecord) -> str | None:
    """Return the line for an event that people want to know of, or None."""
    data: dict[str, Any] = dict(event.data)
    match event.kind:
        case EventKind.TARGET_CONFIRMED:
            what = "unlocked" if data.get("unlock") else "reached"
            line = f"{what} {data.get('target')} with candidate {data.get('candidate')}"
            line += f" after {many(data.get('evaluations', 0), 'evaluation')}"
        case EventKind.TARGET_REFUTED:
            line = f"refuted {data.get('target')} of candidate {data.get('candidate')}: {data.get('detail')}"
        case EventKind.ALARM_RAISED:
            line = f"alarm: {data.get('message')}"
        case EventKind.ALARM_CLEARED:
            line = "the alarm is over"
        case EventKind.RUN_STALLED:
            line = f"stuck: {data.get('message')}"
        case EventKind.RUN_PAUSED:
            line = f"paused: {data.get('reason') or 'by request'}"
        case EventKind.RUN_GRANTED:
            line = f"granted {data.get('evaluations')} evaluations in all by its campaign"
        case EventKind.RUN_RESUMED:
            line = "resumed"
        case EventKind.WORK_POISONED:
            line = f"given up: {data.get('work')} of batch {data.get('batch')}: {data.get('reason')}"
        case _:
            return None
    return clean(line).replace("\n", " ")


def _spent(used: float, limit: float | None, unit: str) -> str:
    return f"{number(used)} {unit}" if limit is None else f"{number(used)} of {number(limit)} {unit}"
