"""Print reports of tournaments on the terminal, and write them to files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from speciate.cli import output
from speciate.cli.export import replaced_file, write_records
from speciate.schema.declarations import TournamentRun
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.html import page
from speciate.tournaments.rendering.tables import sections, short_sections, verdict
from speciate.tournaments.report.models import Report

if TYPE_CHECKING:
    from speciate.client import Client


def show_report(report: Report, most_rows: int, *, full: bool) -> None:
    """Print the conclusion and the tables that say who is ahead, or with ``full`` the verdicts and every table."""
    output.print_line(conclusion(report), style="bold")
    slug, tables = report.standings.slug, sections(report)
    if full:
        for line in (*map(verdict, report.standings.methods), *map(verdict, report.standings.comparisons)):
            output.print_line(line)
    export = output.command_line("tournaments export", slug, "--out", "report.html")
    for section in tables if full else short_sections(report):
        output.print_line()
        output.print_line(section.title, style="bold")
        if section.note:
            output.print_line(section.note, style="dim")
        if section.rows:
            output.print_table(section.columns, section.rows[:most_rows])
        if (more := len(section.rows) - most_rows) > 0:
            output.print_line(f"… and {more:,} more: {export}")
    if not full:
        output.print_line()
        output.print_line(f"All {len(tables)} tables: {output.command_line('tournaments report', slug, '--full')}")
        output.print_line(f"With charts: {export}")


def matrix_csv(report: Report) -> str:
    """Return one CSV row for every problem and entrant: runs, and runs that reached the target."""
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
"""Writers of reports by file suffix."""

FORMATS: Final = (*REPORTS, "jsonl", "parquet")
"""All export formats: of reports, then of planned runs."""


def write(service: Client, name: str, path: Path, kind: str) -> None:
    """Write the report of a tournament or all its runs, replacing an existing file atomically."""
    if kind in REPORTS:
        text = REPORTS[kind](service.tournaments.report(name))
        with replaced_file(path) as part:
            part.write_text(text, encoding="utf-8")
    else:
        write_records(path, kind, TournamentRun, service.tournaments.export(name))
