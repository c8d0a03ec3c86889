"""Options and output that the commands of tournaments and campaigns share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, first_records, note_on_interrupt, retry_unavailable
from speciate.cli.errors import ExitCode
from speciate.domain.declaration import DeclarationState

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.declarations import DeclarationRecord

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]
State = Annotated[str | None, typer.Option(help="Only running, paused, completed or cancelled.")]
Reason = Annotated[str | None, typer.Option(help="Reason, stored with the new state.")]
Problems = Annotated[list[str] | None, typer.Option("--problem", help="A problem; repeatable.")]
ProblemSets = Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")]

POLL_S = 1.0
"""Seconds between two reads of a watched declaration."""

R = TypeVar("R", bound="DeclarationRecord[Any]")


@dataclass(frozen=True)
class DeclarationView(Generic[R]):
    """How lists and ``watch`` show one kind of declaration."""

    noun: str
    results: str
    """Command that shows the results."""
    columns: Sequence[str]
    row: Callable[[R], Sequence[object]]
    progress: Callable[[R], str]
    """Returns a phrase about the progress of a record."""
    milestone: Callable[[R], object]
    """Returns what has changed when a watch prints a line."""

    def print_state(self, record: R) -> None:
        output.print_result(record, f"{record.slug} is {state_of(record)} ({self.progress(record)})")

    def follow(self, service: Client, name: str) -> ExitCode:
        """Show the progress until a declaration ends or is paused; return the exit code."""
        with note_on_interrupt(self.noun, name):
            record = self._follow(service, name)
        if not output.wants_json():
            self.print_state(record)
            output.print_line(f"Results: {output.command_line(self.results, record.slug)}")
        codes = {DeclarationState.COMPLETED: ExitCode.OK, DeclarationState.PAUSED: ExitCode.PAUSED}
        return codes.get(record.state, ExitCode.FAILED)

    def _follow(self, service: Client, name: str) -> R:
        read: Callable[[str], R] = getattr(service, f"{self.noun}s").get
        record, printed = read(name), None
        if not output.wants_json():
            output.print_line(f"{record.id}  {service.url}/{self.noun}s/{record.slug}")
        with output.live_status() as show_status:
            while True:
                waits = record.reason if record.state is DeclarationState.RUNNING else None
                line = f"{record.slug}: {self.progress(record)}" + (f"; {waits}" if waits else "")
                current = (line, record.state) if output.wants_json() else (self.milestone(record), waits)
                if current != printed:
                    output.print_result(record, line)
                    printed = current
                if not output.wants_json():
                    show_status(line)
                if record.state is not DeclarationState.RUNNING:
                    return record
                time.sleep(POLL_S)
                record = retry_unavailable(lambda: read(name))


def state_of(record: DeclarationRecord[Any]) -> str:
    return output.format_state(record.state.value, record.reason)


def problem_names(problems: list[str] | None, sets: list[str] | None) -> list[str]:
    return [*(problems or []), *(f"set:{name}" for name in sets or [])]


def add_lifecycle_commands(app: typer.Typer, view: DeclarationView[R], example: str) -> None:
    """Add ``list``, ``watch``, ``pause``, ``resume`` and ``cancel`` to the app of a noun."""
    noun, nouns = view.noun, f"{view.noun}s"
    speciate = f"speciate {nouns}"

    @command(
        app, "list", f"{speciate} list", f"{speciate} list --state running --json", help=f"List {nouns}, newest first."
    )
    def list_(state: State = None, limit: Limit = 20) -> None:
        records = first_records(getattr(client(), nouns).list(state=state), limit)
        empty = output.empty_message(nouns, f"{speciate} create --help", state=state)
        output.print_records(records, view.columns, view.row, empty=empty)

    @command(
        app,
        "watch",
        f"{speciate} watch {example}",
        f"{speciate} watch {example} --json",
        help=f"Watch a {noun} until it ends or is paused. The exit code is 1 if it was cancelled, 10 if it is paused.",
    )
    def watch(name: Name) -> None:
        raise typer.Exit(view.follow(client(), name))

    pauses = f"Pause a {noun}: start no more work, and pause its active runs."

    @command(app, "pause", f"{speciate} pause {example} --reason 'the endpoint moves'", help=pauses)
    def pause(name: Name, reason: Reason = None) -> None:
        view.print_state(getattr(client(), nouns).pause(name, reason))

    @command(app, "resume", f"{speciate} resume {example}", help=f"Resume a paused {noun}.")
    def resume(name: Name) -> None:
        view.print_state(getattr(client(), nouns).resume(name))

    cancels = f"Cancel a {noun} and its active runs. Committed results stay."

    @command(app, "cancel", f"{speciate} cancel {example}", help=cancels)
    def cancel(name: Name, reason: Reason = None) -> None:
        view.print_state(getattr(client(), nouns).cancel(name, reason))
