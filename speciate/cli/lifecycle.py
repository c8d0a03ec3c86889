"""Options and output that the commands of tournaments and campaigns share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, examples, first_records, note_on_interrupt, retry_unavailable
from speciate.cli.errors import ExitCode

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

    def print_state(self, record: R, *, as_json: bool) -> None:
        line = f"{record.slug} is {state_of(record)} ({self.progress(record)})"
        output.print_result(record, line, as_json=as_json)

    def follow(self, service: Client, name: str, *, as_json: bool) -> ExitCode:
        """Show the progress until a declaration ends or is paused; return the exit code."""
        from speciate.domain.declaration import DeclarationState

        with note_on_interrupt(self.noun, name):
            record = self._follow(service, name, as_json=as_json)
        if not as_json:
            self.print_state(record, as_json=False)
            output.print_line(f"Results: speciate {self.results} {record.slug}")
        match record.state:
            case DeclarationState.COMPLETED:
                return ExitCode.OK
            case DeclarationState.PAUSED:
                return ExitCode.PAUSED
            case _:
                return ExitCode.FAILED

    def _follow(self, service: Client, name: str, *, as_json: bool) -> R:
        from speciate.domain.declaration import DeclarationState

        read: Callable[[str], R] = getattr(service, f"{self.noun}s").get
        record, printed = read(name), None
        if not as_json:
            output.print_line(f"{record.id}  {service.url}/{self.noun}s/{record.slug}")
        with output.live_status() as show_status:
            while True:
                line = f"{record.slug}: {self.progress(record)}"
                current = (line, record.state) if as_json else self.milestone(record)
                if current != printed:
                    output.print_result(record, line, as_json=as_json)
                    printed = current
                if not as_json:
                    show_status(line)
                if record.state is not DeclarationState.RUNNING:
                    return record
                time.sleep(POLL_S)
                record = retry_unavailable(lambda: read(name))


def state_of(record: DeclarationRecord[Any]) -> str:
    return record.state.value + (f": {record.reason}" if record.reason else "")


def problem_names(problems: list[str] | None, sets: list[str] | None) -> list[str]:
    return [*(problems or []), *(f"set:{name}" for name in sets or [])]


def add_lifecycle_commands(app: typer.Typer, view: DeclarationView[R], example: str) -> None:
    """Add ``list``, ``watch``, ``pause``, ``resume`` and ``cancel`` to the app of a noun."""
    noun, nouns = view.noun, f"{view.noun}s"

    def list_(ctx: typer.Context, state: State = None, limit: Limit = 20, as_json: AsJson = False) -> None:
        with client(ctx) as service:
            records = first_records(ctx, getattr(service, nouns).list(state=state), limit)
        empty = output.empty_message(nouns, f"speciate {nouns} create --help", state=state)
        output.print_records(records, view.columns, view.row, empty=empty, as_json=as_json)

    def watch(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
        with client(ctx) as service:
            raise typer.Exit(view.follow(service, name, as_json=as_json))

    def pause(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
        with client(ctx) as service:
            view.print_state(getattr(service, nouns).pause(name, reason), as_json=as_json)

    def resume(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
        with client(ctx) as service:
            view.print_state(getattr(service, nouns).resume(name), as_json=as_json)

    def cancel(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
        with client(ctx) as service:
            view.print_state(getattr(service, nouns).cancel(name, reason), as_json=as_json)

    watched = f"Watch a {noun} until it ends or is paused."
    commands: dict[str, tuple[Callable[..., None], str, tuple[str, ...]]] = {
        "list": (list_, f"List {nouns}, newest first.", ("", " --state running --json")),
        "watch": (
            watch,
            f"{watched} The exit code is 1 if it was cancelled, 10 if it is paused.",
            (f" {example}", f" {example} --json"),
        ),
        "pause": (
            pause,
            f"Pause a {noun}: start no more work, and pause its active runs.",
            (f" {example} --reason 'the endpoint moves'",),
        ),
        "resume": (resume, f"Resume a paused {noun}.", (f" {example}",)),
        "cancel": (cancel, f"Cancel a {noun} and its active runs. Committed results stay.", (f" {example}",)),
    }
    for verb, (command, summary, usages) in commands.items():
        usage = examples(*(f"speciate {nouns} {verb}{arguments}" for arguments in usages))
        app.command(verb, help=summary, epilog=usage)(command)
