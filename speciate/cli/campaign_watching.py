"""Following a campaign: what is spent, what is unlocked, and where the evaluations go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from speciate.cli import output
from speciate.cli.campaign import percent, stands, state_of
from speciate.cli.common import retry_unavailable
from speciate.cli.errors import ExitCode
from speciate.domain.declaration import DeclarationState

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speciate.client import Client
    from speciate.ports.records.declarations import CampaignProblem, CampaignRecord

LOOK_EVERY_S = 1.0
_SHOWN: Final = 12


def follow(service: Client, name: str, *, as_json: bool) -> ExitCode:
    """Show progress until a campaign ends or is paused; return the exit code."""
    from rich.live import Live

    out, told = output.console(), None
    record = service.campaigns.get(name)
    with Live(console=out, transient=True, auto_refresh=False) as live:
        while True:
            progress = (record.spent, record.unlocked, record.state if as_json else None)
            if as_json and progress != told:
                output.print_json(record)
            elif out.is_terminal and not as_json:
                live.update(_picture(record), refresh=True)
            elif not as_json and progress != told:
                output.print_line(f"{record.slug}: {_headline(record)}")
            told = progress
            if record.state is not DeclarationState.RUNNING:
                break
            time.sleep(LOOK_EVERY_S)
            record = retry_unavailable(lambda: service.campaigns.get(name))
    if not as_json:
        output.print_line(f"{record.slug} is {state_of(record)}; {_unlocked(record)}")
        output.print_line(f"Where they went: speciate campaign show {record.slug}")
    return ExitCode.OK if record.state is DeclarationState.COMPLETED else ExitCode.FAILED


def _headline(record: CampaignRecord) -> str:
    return f"{record.spent:,} of {record.declaration.evaluations:,} evaluations, {_unlocked(record)}"


def _unlocked(record: CampaignRecord) -> str:
    return f"{record.unlocked:,} of {len(record.declaration.problems):,} problems unlocked"


def _picture(record: CampaignRecord) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 2))
    total = record.declaration.evaluations
    bar.add_row(
        Text(output.sanitize(record.slug), style="bold"),
        ProgressBar(total=total, completed=record.spent, width=30),
        Text(_headline(record)),
    )
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("problem", "stands", "spent", "since target", "chance", "reached"):
        table.add_column(column, justify="right" if column in {"spent", "since target", "chance"} else "left")
    for each in sorted(record.problems, key=_interest)[:_SHOWN]:
        cells = (each.problem, stands(each), f"{each.spent:,}", f"{each.gap:,}", percent(each.chance),
                 ", ".join(each.reached))  # fmt: skip
        table.add_row(*(Text(output.sanitize(cell)) for cell in cells), style="green" if each.unlocked else "")
    left = len(record.problems) - _SHOWN
    more = [Text(f"… and {left:,} more: speciate campaign show {record.slug}", style="dim")] if left > 0 else []
    return Group(bar, table, *more)


def _interest(problem: CampaignProblem) -> tuple[bool, bool, float]:
    """Order problems: those that are searched first, then by chance, those that take no more last."""
    return problem.chance == 0, stands(problem) == "waits", -problem.chance
