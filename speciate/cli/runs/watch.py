"""Watch a run: live progress on a terminal, plain lines elsewhere, events as JSON Lines with ``--json``."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from speciate.cli import output
from speciate.cli.best_program import find_best_program, require_free
from speciate.cli.common import note_on_interrupt, retry_unavailable
from speciate.cli.errors import ExitCode
from speciate.cli.output import LEARNING_WAITS, format_number, format_spent, format_state, pluralize, sanitize
from speciate.cli.runs.tracking import RunLog, Tracker, open_log
from speciate.domain.diagnosis import FAILURES
from speciate.domain.errors import SpeciateError
from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.schema.runs import EventRecord, RunRecord

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle

LIVE_REFRESH_S: Final = 0.25
"""Seconds between reads of the run on a terminal."""

PLAIN_REFRESH_S: Final = 5.0
"""Seconds between reads of the run elsewhere."""

_ALARMS: Final = frozenset({EventKind.ALARM_RAISED, EventKind.ALARM_CLEARED})
_STYLES: Final[dict[RunState, str]] = {
    RunState.RUNNING: "cyan",
    RunState.COMPLETED: "green",
    RunState.PAUSED: "yellow",
    RunState.FAILED: "red",
}


def watch_run(
    service: Client,
    run: RunHandle,
    out: Path | None,
    *,
    write: bool,
    tracker: Tracker | None = None,
    lasts: bool = True,
) -> ExitCode:
    """Show a run until it ends or is paused, then its best candidate, and write the program.

    Ctrl-C notes how to go on with the run, unless its service ends with the command: then ``lasts`` is False.
    """
    if out is not None:
        require_free(out, run.id)
    note = note_on_interrupt("run", run.id, in_process=service.in_process) if lasts else nullcontext()
    warnings = policy_warnings() if service.in_process else nullcontext()
    with note, warnings, open_log(tracker, run) if tracker else nullcontext() as log:
        write = write and (out is not None or not output.wants_json())
        try:
            record = _show(run, log, page=not service.in_process)
        except KeyboardInterrupt:
            if service.in_process and lasts and run.refresh().best is not None:
                _conclude(service, run, out, log, write=write)
            raise
        _conclude(service, run, out, log, write=write)
    match record.state:
        case RunState.COMPLETED if record.no_result is None:
            return ExitCode.OK if record.unlocked else ExitCode.NOT_UNLOCKED
        case RunState.PAUSED:
            return ExitCode.PAUSED
        case _:
            return ExitCode.FAILED


class _Notes(logging.Handler):
    """Prints each warning once, whatever number of requests it concerns."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()) not in self._printed:
            self._printed.add(text)
            output.print_note(f"warning: {text}")


@contextmanager
def policy_warnings() -> Iterator[None]:
    """Print what policies of this process warn of, such as an outage of an endpoint that they wait for."""
    handler, logger = _Notes(), logging.getLogger("speciate.policies")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def watch_started(
    service: Client, run: RunHandle, out: Path | None, *, write: bool, tracker: Tracker | None = None
) -> ExitCode:
    """Watch a run that this command started; with ``--json`` the last line is the run as it ended."""
    code = watch_run(service, run, out, write=write, tracker=tracker)
    if output.wants_json():
        output.print_json(run.record)
    return code


def _show(run: RunHandle, log: RunLog | None, *, page: bool) -> RunRecord:
    if output.wants_json():
        last_event, paused = run.record.last_event, run.state is RunState.PAUSED
        for event in run.watch(until_paused=True):
            if log is not None:
                log.add(event)
            output.print_json(event)
            # Work in flight is still booked after a pause, so the last event of a paused run may be of any kind.
            if event.seq >= last_event and (paused or event.kind == EventKind.RUN_PAUSED):
                if retry_unavailable(run.refresh).stays_paused:
                    break
                paused = False
        return retry_unavailable(run.refresh)
    output.print_line(f"run {run.id}  {run.url}" if page else f"run {run.id}")
    with output.live_status() as show_status:
        record = _watch(run, RunView(show_status), log)
    _print_outcome(record)
    return record


def _conclude(service: Client, run: RunHandle, out: Path | None, log: RunLog | None, *, write: bool) -> None:
    """Write and log the program, and print the best candidate unless the output is JSON.

    A failure does not end the command.
    """
    if log is not None:
        log.log()
    if output.wants_json() and not write and log is None:
        return
    try:
        program = retry_unavailable(lambda: find_best_program(service, run))
    except SpeciateError as error:
        record = run.record
        if output.wants_json() or not (record.diagnosis or (record.no_result and record.no_result in str(error))):
            output.print_note(error)
        elif record.no_result:  # the outcome says why
            output.print_note(error.remedy)
        return
    if log is not None:
        log.save(program.files)
    written = None
    if write:
        try:
            written = program.write(out or program.default_directory)
        except SpeciateError as error:
            output.print_note(f"The best program is not written: {error}")
    if not output.wants_json():
        retry_unavailable(lambda: program.print_facts(written))
        output.print_note(f"Print it with: {output.command_line('best', run.id)}")


def _watch(run: RunHandle, view: RunView, log: RunLog | None) -> RunRecord:
    record = run.refresh()
    last_seen = record.last_event
    view.show_progress(record)
    if record.stays_paused:
        _log_history(run, log, last_seen)
        return record
    shown_at = time.monotonic()
    for event in run.watch(after=last_seen if log is None else 0, until_paused=True):
        if log is not None:
            log.add(event)
        if event.seq <= last_seen:
            continue
        if event.kind == EventKind.RUN_PAUSED and retry_unavailable(run.refresh).stays_paused:
            break
        view.show_event(event)
        if time.monotonic() - shown_at >= view.refresh_s:
            record = retry_unavailable(run.refresh)
            view.show_progress(record)
            shown_at = time.monotonic()
    record = retry_unavailable(run.refresh)
    view.show_progress(record)
    return record


def _log_history(run: RunHandle, log: RunLog | None, last: int) -> None:
    """Log the events up to ``last``, after which a paused run may send none."""
    if log is None or not last:
        return
    for event in run.watch():
        log.add(event)
        if event.seq >= last:
            break


def _print_outcome(record: RunRecord) -> None:
    style = "red" if record.no_result else _STYLES.get(record.state, "")
    output.print_line(format_state(record.outcome, record.cause), style=style)
    if record.reasons and record.state is RunState.COMPLETED and not record.no_result:
        reason = max(record.reasons, key=record.reasons.__getitem__)
        see = output.command_line("candidates list", record.id, "--status", "failed")
        output.print_line(f"{record.failed:,} failed, {record.reasons[reason]:,} of them by {reason}: {see}")
    output.print_diagnosis(record)
    if record.estimate is not None:
        output.print_estimate(record.estimate, record.actual)
    if record.state is RunState.PAUSED:
        advice = f"Resume it with: {output.command_line('runs resume', record.id)}"
        output.print_line("Its budget is spent: start a new run." if record.share_spent >= 1 else advice)


class RunView:
    """One line for each change: of the state, of the best candidate, and events; on a terminal the status below."""

    def __init__(self, show_status: Callable[[str], None]) -> None:
        self.refresh_s = LIVE_REFRESH_S if sys.stdout.isatty() else PLAIN_REFRESH_S
        self._show_status = show_status
        self._state: RunState | None = None
        self._best = ""
        self._alarm = ""

    def show_event(self, event: EventRecord) -> None:
        name = str(event.data.get("name", FAILURES)) if event.kind == EventKind.ALARM_RAISED else ""
        repeated = bool(name) and name == self._alarm
        if event.kind in _ALARMS:
            self._alarm = name
        if not repeated and (template := _EVENT_LINES.get(event.kind)):
            output.print_line(template(dict(event.data)).replace("\n", " "))

    def show_progress(self, run: RunRecord) -> None:
        """Print the spent budget if the state changed, and the best candidate of a running run if it changed."""
        self._show_status(status_line(run))
        if run.state is not self._state:
            output.print_line(status_line(run))
        best = self._best
        if run.best is not None and not _is_over(run):
            best = f"best candidate {run.best.number:,}: {', '.join(map(str, run.best_rewards))}"
        if best != self._best:
            output.print_line(f"{best}  after {pluralize(run.spent.evaluations, 'evaluation')}")
        self._state, self._best = run.state, best


def _is_over(run: RunRecord) -> bool:
    """Return True if its outcome and its answer are printed below the progress, which then leaves them out."""
    return run.state.ended or run.state is RunState.PAUSED


def status_line(run: RunRecord) -> str:
    """Return name, state, spent budget and estimated time left on one line."""
    budget, spent = run.spec.budget, run.spent
    parts = [f"{format_spent(spent.evaluations, budget.evaluations)} evaluations"]
    if run.polished:
        parts[0] += f" ({pluralize(run.rollouts, 'completion')}, {run.polished:,} polished)"
    if spent.tokens or budget.tokens:
        estimated = f" ({run.estimated_tokens:,} estimated)" if run.estimated_tokens else ""
        parts.append(f"{format_spent(spent.tokens, budget.tokens)} tokens{estimated}")
    if spent.cost or budget.dollars:
        limit = "" if budget.dollars is None else f" of ${budget.dollars:,.2f}"
        parts.append(f"${spent.cost:,.2f}{limit}")
    parts.append(f"{format_spent(round(spent.seconds, 1), budget.seconds)} s")
    if run.state is RunState.RUNNING and spent.evaluations and spent.seconds:
        parts.append(f"{format_number(round(60 * spent.evaluations / spent.seconds))} a minute")
    if run.learning is not None and run.learning.busy:
        parts.append(LEARNING_WAITS)
    elif (left := run.seconds_to_go) is not None:
        parts.append(f"about {timedelta(seconds=round(left))} left")
    parts.append(f"{run.failed:,} failed, {run.duplicates:,} duplicates")
    if run.state is RunState.RUNNING and run.reason:
        parts.append(run.reason)
    heads = [run.name, "" if _is_over(run) else run.state.value]
    return sanitize(": ".join((*filter(None, heads), "  ".join(parts))))


def _confirmed(data: dict[str, Any]) -> str:
    unlocks = ", which unlocks the problem" if data.get("unlock") else ""
    evaluations = pluralize(data.get("evaluations", 0), "evaluation")
    return f"candidate {data.get('candidate')} meets {data.get('target')}{unlocks}: confirmed after {evaluations}"


_EVENT_LINES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    EventKind.TARGET_CONFIRMED: _confirmed,
    EventKind.TARGET_REFUTED: lambda data: (
        f"candidate {data.get('candidate')} misses {data.get('target')} when evaluated again: {data.get('detail')}"
    ),
    EventKind.ALARM_RAISED: lambda data: f"alarm: {data.get('message')}",
    EventKind.ALARM_CLEARED: lambda _: "alarm cleared",
    EventKind.RUN_STALLED: lambda data: f"stalled: {data.get('message')}",
    EventKind.RUN_PAUSED: lambda data: f"paused: {data.get('reason') or 'by request'}",
    EventKind.RUN_GRANTED: lambda data: f"budget raised to {data.get('evaluations')} evaluations by its campaign",
    EventKind.RUN_RESUMED: lambda _: "resumed",
    EventKind.WORK_POISONED: lambda data: (
        f"gave up {data.get('work')} of batch {data.get('batch')}: {data.get('reason')}"
    ),
}
