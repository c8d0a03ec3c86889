"""Reports of tournaments on the terminal and in files, and following a tournament."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from speciate.cli import output
from speciate.cli.common import retry_unavailable
from speciate.cli.errors import ExitCode
from speciate.cli.export import replaced_file, write_records
from speciate.domain.declaration import DeclarationState
from speciate.ports.records.declarations import TournamentRun
from speciate.tournaments.rendering.html import page
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.models import Report

if TYPE_CHECKING:
    from speciate.client import Client

LOOK_EVERY_S: Final = 1.0
"""How often a tournament that is followed is read again."""


def show_report(report: Report, most_rows: int) -> None:
    """Print every table, the verdicts first."""
    for comparison in report.standings.comparisons:
        output.print_line(verdict(comparison), style="bold")
    for section in sections(report):
        output.print_line()
        output.print_line(section.title, style="bold")
        if section.note:
            output.print_line(section.note, style="dim")
        if section.rows:
            output.print_table(section.columns, section.rows[:most_rows], empty="")
        if (more := len(section.rows) - most_rows) > 0:
            output.print_line(
                f"… and {more:,} more: speciate tournament export {report.standings.slug} --out report.html"
            )


def matrix_csv(report: Report) -> str:
    """Return one line for every problem and entrant: runs, and those that reached the target."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("tournament", "problem", "entrant", "successes", "runs"))
    for row in report.matrix.rows:
        for name, successes, runs in zip(report.matrix.entrants, row.successes, row.runs, strict=True):
            rows.writerow((report.standings.slug, row.problem, name, successes, runs))
    return text.getvalue()


REPORTS: Final[dict[str, Callable[[Report], str]]] = {
    "html": page,
    "json": lambda report: report.model_dump_json(indent=2) + "\n",
    "csv": matrix_csv,
}
"""What a report can be written as, by the end of the file's name."""

FORMATS: Final = (*REPORTS, "jsonl", "parquet")
"""The same, and what every planned run can be written as."""


def write(service: Client, name: str, path: Path, kind: str) -> None:
    """Write the report of a tournament, or all its runs; an old file is replaced whole or not at all.

    Raises:
        ConfigurationError: Parquet is asked for and pyarrow is not there.
        ConflictError: The file cannot be written.
    """
    if kind in REPORTS:
        text = REPORTS[kind](service.tournaments.report(name))
        with replaced_file(path) as part:
            part.write_text(text, encoding="utf-8")
    else:
        write_records(path, kind, TournamentRun, service.tournaments.export(name))


def follow(service: Client, name: str, *, as_json: bool) -> ExitCode:
    """Show progress until a tournament ends or is paused; return the exit code."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = output.console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    record, told = service.tournaments.get(name), None
    with Progress(*columns, console=out, disable=as_json or not out.is_terminal) as progress:
        bar = progress.add_task(output.sanitize(record.slug), total=record.planned)
        while True:
            progress.update(bar, completed=record.ended, total=record.planned)
            now = (record.ended, record.state if as_json else None)
            if as_json and now != told:
                output.print_json(record)
            elif not out.is_terminal and not as_json and now != told:
                output.print_line(f"{record.slug}: {record.ended:,} of {record.planned:,} runs ended")
            told = now
            if record.state is not DeclarationState.RUNNING:
                break
            time.sleep(LOOK_EVERY_S)
            record = retry_unavailable(lambda: service.tournaments.get(name))
    if not as_json:
        output.print_line(f"{record.slug} is {record.state.value}" + (f": {record.reason}" if record.reason else ""))
        if record.state is DeclarationState.COMPLETED:
            output.print_line(f"Read it with: speciate tournament report {record.slug}")
    return ExitCode.OK if record.state is DeclarationState.COMPLETED else ExitCode.FAILED
