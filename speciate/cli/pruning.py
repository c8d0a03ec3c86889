"""``speciate prune``: the texts of old runs go, the record stays; so do old entries of the audit log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, DataDir, examples

if TYPE_CHECKING:
    from speciate.storage.runs.retention import Prunable, Retention

PRUNE_EXAMPLES = examples(
    "speciate prune --dry-run", "speciate prune --older-than 90 --completed --yes", "speciate prune --dry-run --json"
)

_LONGEST_DAYS: Final = 36_525.0


def prune_command(
    older_than: Annotated[float, typer.Option(min=0, max=_LONGEST_DAYS, help="Days since the run ended.")] = 30.0,
    completed: Annotated[bool, typer.Option("--completed", help="Completed runs too, not only dead ones.")] = False,
    audit_older_than: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=_LONGEST_DAYS,
            help="Days that entries of the audit log are kept.",
            show_default="SPECIATE_AUDIT_DAYS, which is 400",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove programs, prompts and completions of runs that were cancelled or failed long ago.

    What stays: the run with its counters and events, every candidate's rewards and descent, and all texts of candidates
    that claimed a target or hold a place of the archive. A pruned run cannot be replayed. Runs may go on meanwhile.

    Entries of the audit log go that are older than they are kept; an entry says how many went.
    """
    from speciate.cli.attached import attached_stores
    from speciate.domain.errors import ConfigurationError
    from speciate.domain.run import RunState
    from speciate.settings import load_settings
    from speciate.storage.database import check_version
    from speciate.storage.runs.retention import DEAD, Retention

    states = (*DEAD, RunState.COMPLETED) if completed else DEAD
    now = datetime.now(UTC)
    audit_days = load_settings().audit_days if audit_older_than is None else audit_older_than
    before = now - timedelta(days=audit_days)
    with attached_stores(data_dir) as stores:
        check_version(stores.engine)
        retention = Retention(stores.engine)
        found = retention.prunable(now - timedelta(days=older_than), states)
        entries = stores.audit.count_old(before) if audit_days else 0
        if not as_json:
            _show(found)
            if entries:
                output.say(f"{entries:,} entries of the audit log are older than {audit_days:g} days.")
        if (found or entries) and not dry_run:
            if not yes and not output.console().is_terminal:
                raise ConfigurationError("nobody is here to ask.", remedy="Give --yes to prune, or --dry-run to look.")
            if not yes and not typer.confirm("Remove this for good?", err=as_json):
                raise typer.Exit
            _prune(retention, found, now)
            if entries:
                entries = stores.audit.forget(before, "prune")
    if as_json:
        size = sum(run.bytes for run in found)
        pruned = bool(found or entries) and not dry_run
        output.json_line({"runs": len(found), "bytes": size, "audit": entries, "pruned": pruned})
    elif (found or entries) and not dry_run:
        also = f", {output.many(entries, 'entry', 'entries')} of the audit log deleted" if entries else ""
        output.say(f"{output.many(len(found), 'run')} pruned{also}; PostgreSQL uses the space again.")


def _show(found: tuple[Prunable, ...]) -> None:
    rows = [
        (run.run_id, run.problem, run.state.value, output.moment(run.finished_at), run.candidates, _size(run.bytes))
        for run in found
    ]
    columns = ("run", "problem", "state", "ended", ">candidates", ">texts")
    output.table(columns, rows, empty="No run is old enough to be pruned.")
    if found:
        output.say(f"{output.many(len(found), 'run')} with {_size(sum(run.bytes for run in found))} of texts.")


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
