"""Commands that tournaments and campaigns share: list, watch, pause, resume and cancel."""

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
    from rich.console import RenderableType

    from speciate.client import Client
    from speciate.client.sync.declarations import DeclarationsClient
    from speciate.schema.declarations import DeclarationRecord

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]
Reason = Annotated[str | None, typer.Option(help="Reason, stored with the new state.")]
Problems = Annotated[list[str] | None, typer.Option("--problem", help="A problem; repeatable.")]
ProblemSets = Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")]

POLL_S = 1.0
"""Seconds between two reads of a watched declaration."""

R = TypeVar("R", bound="DeclarationRecord[Any]")


@dataclass(frozen=True)
class LifecycleCommands(Generic[R]):
    """The shared commands of one kind of declaration.

    Attributes:
        noun: The kind, in the singular.
        example: A name for the examples.
        group: Selects the client group.
        columns: Columns of the list.
        row: Returns the cells of a record in the list.
        progress: Returns a phrase about the progress of a record.
        milestone: Returns what has changed when a watch without a terminal prints a line.
        share: Returns the completed and the total amount, for the progress bar.
        results: Command that shows the results.
        details: Returns what a terminal shows below the progress bar.
    """

    noun: str
    example: str
    group: Callable[[Client], DeclarationsClient[Any, R]]
    columns: Sequence[str]
    row: Callable[[R], Sequence[object]]
    progress: Callable[[R], str]
    milestone: Callable[[R], object]
    share: Callable[[R], tuple[int, int]]
    results: str
    details: Callable[[R], RenderableType] | None = None

    def add_to(self, app: typer.Typer) -> None:
        """Add the commands to the app of the kind."""
        command = f"speciate {self.noun}s"

        def list_(
            ctx: typer.Context,
            state: Annotated[str | None, typer.Option(help="Only running, paused, completed or cancelled.")] = None,
            limit: Limit = 20,
            as_json: AsJson = False,
        ) -> None:
            """List {}s, newest first."""
            with client(ctx) as service:
                records = first_records(ctx, self.group(service).list(state=state), limit)
            if as_json:
                for record in records:
                    output.print_json(record)
                return
            empty = output.empty_message(f"{self.noun}s", f"{command} create --help", state=state)
            output.print_table(self.columns, [self.row(record) for record in records], empty=empty)

        def watch(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
            """Watch a {} until it ends or is paused. The exit code is 1 if it was cancelled, 10 if it is paused."""
            with client(ctx) as service:
                raise typer.Exit(self.follow(service, name, as_json=as_json))

        def pause(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
            """Pause a {}: start no more work, and pause its active runs."""
            with client(ctx) as service:
                self.print_state(self.group(service).pause(name, reason), as_json=as_json)

        def resume(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
            """Resume a paused {}."""
            with client(ctx) as service:
                self.print_state(self.group(service).resume(name), as_json=as_json)

        def cancel(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
            """Cancel a {} and its active runs. Committed results stay."""
            with client(ctx) as service:
                self.print_state(self.group(service).cancel(name, reason), as_json=as_json)

        commands: tuple[tuple[str, Callable[..., None], tuple[str, ...]], ...] = (
            ("list", list_, ("", "--state running --json")),
            ("watch", watch, (self.example, f"{self.example} --json")),
            ("pause", pause, (f"{self.example} --reason 'the endpoint moves'",)),
            ("resume", resume, (self.example,)),
            ("cancel", cancel, (self.example,)),
        )
        for name, function, lines in commands:
            text = str(function.__doc__).format(self.noun)
            epilog = examples(*(f"{command} {name} {line}".rstrip() for line in lines))
            app.command(name, help=text, epilog=epilog)(function)

    def print_state(self, record: R, *, as_json: bool) -> None:
        output.print_result(record, f"{record.slug} is {state_of(record)} ({self.progress(record)})", as_json=as_json)

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
        from rich.live import Live

        from speciate.domain.declaration import DeclarationState

        out, printed = output.console(), None
        group, started = self.group(service), time.monotonic()
        record = group.get(name)
        live_picture = out.is_terminal and not as_json
        if not (live_picture or as_json):
            output.print_line(f"{record.id}  {service.url}/{self.noun}s/{record.slug}")
        with Live(console=out, transient=True, auto_refresh=False) as live:
            while True:
                current = (self.progress(record), record.state) if as_json else self.milestone(record)
                if live_picture:
                    live.update(self._picture(record, time.monotonic() - started), refresh=True)
                elif current != printed:
                    output.print_json(record) if as_json else output.print_line(
                        f"{record.slug}: {self.progress(record)}"
                    )
                printed = current
                if record.state is not DeclarationState.RUNNING:
                    return record
                time.sleep(POLL_S)
                record = retry_unavailable(lambda: group.get(name))

    def _picture(self, record: R, elapsed_s: float) -> RenderableType:
        from datetime import timedelta

        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        completed, total = self.share(record)
        line = Table.grid(padding=(0, 2))
        line.add_row(
            Text(output.sanitize(record.slug), style="bold"),
            ProgressBar(total=total, completed=completed, width=30),
            Text(self.progress(record)),
            Text(str(timedelta(seconds=int(elapsed_s)))),
        )
        return line if self.details is None else Group(line, self.details(record))


def state_of(record: DeclarationRecord[Any]) -> str:
    return record.state.value + (f": {record.reason}" if record.reason else "")


def problem_names(problems: list[str] | None, sets: list[str] | None) -> list[str]:
    return [*(problems or []), *(f"set:{name}" for name in sets or [])]
