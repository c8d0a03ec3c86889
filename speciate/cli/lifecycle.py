"""Options and output that the commands of tournaments and campaigns share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from speciate.cli import output
from speciate.cli.common import note_on_interrupt, retry_unavailable
from speciate.cli.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speciate.schema.declarations import DeclarationRecord

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]
State = Annotated[str | None, typer.Option(help="Only running, paused, completed or cancelled.")]
Reason = Annotated[str | None, typer.Option(help="Reason, stored with the new state.")]
Problems = Annotated[list[str] | None, typer.Option("--problem", help="A problem; repeatable.")]
ProblemSets = Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")]

POLL_S = 1.0
"""Seconds between two reads of a watched declaration."""

R = TypeVar("R", bound="DeclarationRecord[Any]")


def print_list(
    records: Sequence[R],
    noun: str,
    columns: Sequence[str],
    row: Callable[[R], Sequence[object]],
    *,
    state: str | None,
    as_json: bool,
) -> None:
    if as_json:
        for record in records:
            output.print_json(record)
        return
    empty = output.empty_message(f"{noun}s", f"speciate {noun}s create --help", state=state)
    output.print_table(columns, [row(record) for record in records], empty=empty)


def print_state(record: DeclarationRecord[Any], progress: str, *, as_json: bool) -> None:
    output.print_result(record, f"{record.slug} is {state_of(record)} ({progress})", as_json=as_json)


@dataclass(frozen=True)
class WatchView(Generic[R]):
    """How ``watch`` shows one kind of declaration."""

    noun: str
    results: str
    """Command that shows the results."""
    progress: Callable[[R], str]
    milestone: Callable[[R], object]
    """Returns what has changed when a watch without a terminal prints a line."""
    share: Callable[[R], tuple[int, int]]
    """Returns the completed and the total amount, for the progress bar."""
    details: Callable[[R], RenderableType] | None = None
    """Returns what a terminal shows below the progress bar."""

    def follow(self, url: str, name: str, read: Callable[[str], R], *, as_json: bool) -> ExitCode:
        """Show the progress until a declaration ends or is paused; return the exit code.

        Args:
            url: URL of the service.
            name: Name or id of the declaration.
            read: Reads a declaration.
            as_json: Print records as JSON instead.
        """
        from speciate.domain.declaration import DeclarationState

        with note_on_interrupt(self.noun, name):
            record = self._follow(url, name, read, as_json=as_json)
        if not as_json:
            print_state(record, self.progress(record), as_json=False)
            output.print_line(f"Results: speciate {self.results} {record.slug}")
        match record.state:
            case DeclarationState.COMPLETED:
                return ExitCode.OK
            case DeclarationState.PAUSED:
                return ExitCode.PAUSED
            case _:
                return ExitCode.FAILED

    def _follow(self, url: str, name: str, read: Callable[[str], R], *, as_json: bool) -> R:
        from rich.live import Live

        from speciate.domain.declaration import DeclarationState

        out, printed, started = output.console(), None, time.monotonic()
        record = read(name)
        live_picture = out.is_terminal and not as_json
        if not (live_picture or as_json):
            output.print_line(f"{record.id}  {url}/{self.noun}s/{record.slug}")
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
                record = retry_unavailable(lambda: read(name))

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
