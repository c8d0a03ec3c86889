"""``speciate prune``: the texts of old runs go, the record stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, DataDir, examples

if TYPE_CHECKING:
    from speciate.storage.retention import Prunable, Retention

PRUNE_EXAMPLES = examples(
    "speciate prune --dry-run", "speciate prune --older-than 90 --completed --yes", "speciate prune --dry-run --json"
)


def prune_command(
    older_than: Annotated[float, typer.Option(min=0, help="Days since the run ended.")] = 30.0,
    completed: Annotated[bool, typer.Option("--completed", help="Completed runs too, not only dead ones.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove programs, prompts and completions of runs that were cancelled or failed long ago.

    What stays: the run with its counters and events, every candidate's rewards and descent, and all texts of candidates
    that claimed a target or hold a place of the archive. A pruned run cannot be replayed. Runs may go on meanwhile.
    """
    from speciate.cli.attached import attached_plane
    from speciate.domain.errors import ConfigurationError
    from speciate.domain.run import RunState
    from speciate.storage.database import check_version
    from speciate.storage.retention import DEAD, Retention

    states = (*DEAD, RunState.COMPLETED) if completed else DEAD
    now = datetime.now(UTC)
    with attached_plane(data_dir) as plane:
        check_version(plane.engine)
        retention = Retention(plane.engine)
        found = retention.prunable(now - timedelta(days=older_than), states)
        if not as_json:
            _show(found)
        if found and not dry_run:
            if not yes and not output.console().is_terminal:
                raise ConfigurationError("nobody is here to ask.", remedy="Give --yes to prune, or --dry-run to look.")
            if not yes and not typer.confirm("Remove these texts for good?"):
                raise typer.Exit
            _prune(retention, found, now)
    if as_json:
        size = sum(run.bytes for run in found)
        output.json_line({"runs": len(found), "bytes": size, "pruned": bool(found) and not dry_run})
    elif found and not dry_run:
        output.say(f"{len(found):,} runs are pruned; PostgreSQL uses the space again.")


def _show(found: tuple[Prunable, ...]) -> None:
    rows = [
        (run.run_id, run.problem, run.state.value, output.moment(run.finished_at), run.candidates, _size(run.bytes))
        for run in found
    ]
    columns = ("run", "problem", "state", "ended", ">candidates", ">texts")
    output.table(columns, rows, empty="No run is old enough to be pruned.")
    if found:
        output.say(f"{len(found):,} runs with {_size(sum(run.bytes for run in found))} of texts.")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def _prune(retention: Retention, found: tuple[Prunable, ...], now: datetime) -> None:
    from rich.progress import Progress

    console = output.console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("Pruning", total=sum(run.candidates for run in found))
        for texts in retention.prune(found, now):
            progress.advance(task, texts)
        progress.update(task, completed=sum(run.candidates for run in found))
