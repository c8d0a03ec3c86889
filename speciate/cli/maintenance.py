"""Maintenance of the database: ``speciate prune`` and ``secrets renew``."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from speciate.cli import output
from speciate.cli.common import DataDir, Yes, command, command_group, confirm
from speciate.domain.run import RunState
from speciate.local.servers import connected_stores
from speciate.settings import load_settings
from speciate.storage.database import check_version
from speciate.storage.runs.purge import PurgeStore
from speciate.storage.runs.retention import UNSUCCESSFUL, PrunableRun

app = command_group()
secrets_app = command_group()

app.add_typer(secrets_app, name="secrets")


def _days(text: str, least: float, default: str) -> Any:
    return typer.Option(min=least, max=36_525.0, help=text, show_default=default)


@secrets_app.callback()
def _secrets_group() -> None:
    pass


@command(
    app,
    "prune",
    "speciate prune --dry-run",
    "speciate prune --older-than 90 --completed --yes",
    "speciate prune --dry-run --json",
)
def prune_command(
    older_than: Annotated[float, _days("Minimum age in days since the run ended.", 0, "30")] = 30.0,
    completed: Annotated[
        bool, typer.Option("--completed", help="Include completed runs, not only cancelled and failed ones.")
    ] = False,
    audit_older_than: Annotated[
        float | None, _days("Retention of audit log entries, in days.", 1, "SPECIATE_AUDIT_DAYS, 400")
    ] = None,
    deleted_older_than: Annotated[
        float | None,
        _days("Minimum age in days since runs, problems and policies were deleted.", 0, "SPECIATE_PURGE_DAYS, 30"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and change nothing.")] = False,
    yes: Yes = False,
    data_dir: DataDir = None,
) -> None:
    """Delete programs, prompts and completions of old cancelled or failed runs, and expired audit log entries.

    Remove runs, problems and policies that were deleted long ago.

    Kept: the run with its counters and events, rewards and parents of every candidate, and all texts of candidates that
    claimed a target or hold a cell of the archive. A pruned run cannot be replayed. Running runs are not affected. The
    audit log records how many of its entries were deleted.
    """
    states = (*UNSUCCESSFUL, RunState.COMPLETED) if completed else UNSUCCESSFUL
    now = datetime.now(UTC)
    settings = load_settings()
    audit_days = settings.audit_days if audit_older_than is None else audit_older_than
    audit_before = now - timedelta(days=audit_days)
    purge_days = (settings.purge_days or None) if deleted_older_than is None else deleted_older_than
    with connected_stores(data_dir) as stores:
        check_version(stores.engine)
        retention = PurgeStore(stores.engine)
        runs = retention.prunable(now - timedelta(days=older_than), states)
        entries = stores.audit.count_old(audit_before) if audit_days else 0
        deleted_before = None if purge_days is None else now - timedelta(days=purge_days)
        removed = 0 if deleted_before is None else retention.count(deleted_before)
        if not output.wants_json():
            _print_prunable(runs)
            if entries:
                output.print_line(f"Audit log entries older than {audit_days:g} days: {entries:,}.")
            if removed:
                output.print_line(f"Deleted runs, problems and policies to remove for good: {removed:,}.")
        pruned = bool(runs or entries or removed) and not dry_run
        if pruned:
            confirm("Delete this permanently?", yes=yes, remedy="Pass --yes to confirm, or --dry-run to preview.")
            with output.console(stderr=True).status("Pruning …"):
                retention.prune(runs, now)
            if entries:
                entries = stores.audit.delete_old(audit_before, "prune")
            if deleted_before is not None:
                removed = retention.purge(deleted_before, now, "prune")
    _print_result(runs, entries, removed, pruned=pruned)


def _print_result(runs: tuple[PrunableRun, ...], entries: int, removed: int, *, pruned: bool) -> None:
    size = sum(run.bytes for run in runs)
    output.exit_with_json({"runs": len(runs), "bytes": size, "audit": entries, "removed": removed, "pruned": pruned})
    if pruned:
        also = f", deleted {output.pluralize(entries, 'audit log entry', 'audit log entries')}" if entries else ""
        also += f", removed {output.pluralize(removed, 'deleted object')}" if removed else ""
        output.print_line(f"Pruned {output.pluralize(len(runs), 'run')}{also}. PostgreSQL reuses the space.")


def _print_prunable(prunable: tuple[PrunableRun, ...]) -> None:
    output.print_records(
        prunable,
        ("run", "problem", "state", "ended", ">candidates", ">texts"),
        lambda r: (r.run_id, r.problem, r.state.value, output.format_time(r.finished_at), r.candidates, _size(r.bytes)),
        empty="No run is old enough to prune.",
    )
    if prunable:
        size = _size(sum(run.bytes for run in prunable))
        output.print_line(f"{output.pluralize(len(prunable), 'run')} with {size} of texts.")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


@command(secrets_app, "renew", "SPECIATE_SECRET_KEY=new,old speciate secrets renew")
def renew(data_dir: DataDir = None) -> None:
    """Re-encrypt all stored secrets with the first secret key, so that the other keys can be removed.

    Connects to the servers of the running service, or to SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL.
    """
    with connected_stores(data_dir) as stores:
        count = stores.policy_keys.renew() + stores.webhooks.renew()
    output.print_result({"renewed": count}, f"Re-encrypted with the first key: {output.pluralize(count, 'secret')}.")
