"""Watching a run: a live picture on a terminal, plain lines anywhere else, events as JSON Lines for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from rich.live import Live
from rich.text import Text

from speciate.cli import output
from speciate.cli.exits import Exit
from speciate.cli.live import best_lines, headline, picture, telling
from speciate.cli.session import look_again
from speciate.client import RunHandle
from speciate.domain.errors import NotFoundError
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.ports.records.runs import EventRecord, RunRecord

REFRESH_S: Final = 0.25
"""How often the run is read again while events come."""

PLAIN_REFRESH_S: Final = 5.0
"""The same for plain lines, which stay."""

_ALARMS: Final = frozenset({EventKind.ALARM_RAISED, EventKind.ALARM_CLEARED})


class View(Protocol):
    """What shows a run."""

    interval_s: float

    def tell(self, event: EventRecord) -> None:
        """Show something that happened."""
        ...

    def update(self, run: RunRecord, seed: dict[str, float]) -> None:
        """Show the progress of the run, against the rewards of its seed program."""
        ...


def follow(run: RunHandle, *, as_json: bool) -> Exit:
    """Show a run until it has ended or is paused.

    Args:
        run: The run.
        as_json: Print its events as JSON Lines from the first one, and nothing else.

    Returns:
        The exit code: bad when it failed, was cancelled or paused.
    """
    if as_json:
        known, paused = run.record.last_event, run.state is RunState.PAUSED
        for event in run.watch():
            output.json_line(event)
            # Work in flight is still booked after a pause, so a paused run's last event may be any.
            if event.seq >= known and (paused or event.kind == EventKind.RUN_PAUSED):
                if _is_paused(run):
                    break
                paused = False
        record = look_again(run.refresh)
    else:
        with _view({o.name: o.directed for o in run.problem().definition.objectives}) as view:
            record = _show(run, view)
        _conclude(record)
    return Exit.OK if record.state is RunState.COMPLETED else Exit.FAILED


def _show(run: RunHandle, view: View) -> RunRecord:
    record = run.refresh()
    seed = _seed_rewards(run, record)
    view.update(record, seed)
    if record.state is RunState.PAUSED:
        return record
    shown_at = time.monotonic()
    for event in run.watch(after=record.last_event):
        view.tell(event)
        if event.kind == EventKind.RUN_PAUSED and _is_paused(run):
            break
        if time.monotonic() - shown_at >= view.interval_s:
            record = look_again(run.refresh)
            seed = seed or _seed_rewards(run, record)
            view.update(record, seed)
            shown_at = time.monotonic()
    record = look_again(run.refresh)
    view.update(record, seed or _seed_rewards(run, record))
    return record


def _is_paused(run: RunHandle) -> bool:
    """Tell whether a pause lasts: one that is told late, or that a campaign makes between two slices, may be over."""
    return look_again(run.refresh).state is RunState.PAUSED


def _seed_rewards(run: RunHandle, record: RunRecord) -> dict[str, float]:
    if record.evaluated == 0:
        return {}
    try:
        first = run.candidate(1)
    except NotFoundError:  # Candidates are booked in the order in which their batches finish.
        return {}
    return first.rewards or {} if first.role is PolicyRole.SEED else {}


def _conclude(record: RunRecord) -> None:
    reached = ", ".join(record.reached) or "no target"
    reason = f" ({record.reason})" if record.reason else ""
    output.say(f"{record.state.value}{reason}: reached {reached}")
    if record.state is RunState.PAUSED:
        output.say(f"Resume it with: speciate runs resume {record.id}")
    elif record.best:
        output.aside(f"Its best candidates: speciate candidates top {record.id}")


@contextmanager
def _view(names: Mapping[str, str]) -> Iterator[View]:
    console = output.console()
    if not console.is_terminal:
        yield PlainView(names)
        return
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        yield LiveView(live, names)


class LiveView:
    """A picture that is drawn anew in its place, below the lines that tell what happened."""

    interval_s = REFRESH_S

    def __init__(self, live: Live, names: Mapping[str, str]) -> None:
        self._live = live
        self._names = names

    def tell(self, event: EventRecord) -> None:
        """Print what people want to know; an alarm is in the picture for as long as it lasts."""
        if event.kind not in _ALARMS and (text := telling(event)):
            self._live.console.print(Text(text))

    def update(self, run: RunRecord, seed: dict[str, float]) -> None:
        """Draw the progress."""
        self._live.update(picture(run, seed, self._names))


class PlainView:
    """Lines without escape codes."""

    interval_s = PLAIN_REFRESH_S

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._last: list[str] = []
        self._alarmed = False

    def tell(self, event: EventRecord) -> None:
        """Print what people want to know; an alarm that is raised again and again is told once until it is over."""
        repeated = event.kind == EventKind.ALARM_RAISED and self._alarmed
        if event.kind in _ALARMS:
            self._alarmed = event.kind == EventKind.ALARM_RAISED
        if not repeated and (text := telling(event)):
            output.say(text)

    def update(self, run: RunRecord, seed: dict[str, float]) -> None:
        """Print the progress when there is some."""
        lines = [headline(run), *(f"  {line}" for line in best_lines(run, seed, self._names))]
        if lines != self._last:
            for line in lines:
                output.say(line)
        self._last = lines
