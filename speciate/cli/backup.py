"""``speciate backup`` and ``speciate restore``: the truth as one file. What Redis holds is made anew from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, DataDir, examples

BACKUP_EXAMPLES = examples("speciate backup speciate.dump", "speciate backup /backups/$(date +%F).dump --json")
RESTORE_EXAMPLES = examples(
    "speciate restore speciate.dump --data-dir ./new",
    "SPECIATE_DATABASE_URL=postgresql://… SPECIATE_REDIS_URL=redis://… speciate restore speciate.dump",
)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup_command(
    file: _File,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write everything to a file: problems, policies, runs, programs, unlocks, events, tournaments.

    It holds what was committed at one moment; the service may go on meanwhile. Whoever can read the file can read all
    of it: it is made for this user only. It speaks with the database of the settings, of a running `speciate up`, or
    starts that of the data directory for as long as it takes.
    """
    from speciate.cli.archives import write_archive
    from speciate.cli.attached import reached_settings
    from speciate.domain.errors import ConflictError
    from speciate.storage.revision import revision_of

    if file.exists() and not force:
        raise ConflictError(f"{file} is there already.", remedy="Choose another file, or give --force.")
    with reached_settings(data_dir) as settings, output.console(stderr=True).status("Backing up …") as status:
        assert settings.database_url is not None  # noqa: S101 - for the type checker: reached settings have both
        url = settings.database_url.get_secret_value()
        write_archive(url, file, lambda table: status.update(f"Backing up {table} …"))
        revision = revision_of(url)
    size = file.stat().st_size
    if as_json:
        output.json_line({"file": str(file), "bytes": size, "revision": revision})
    else:
        output.say(f"{file}: {size:,} bytes, schema {revision}.")


def restore_command(
    file: _File,
    force: Annotated[bool, typer.Option("--force", help="Lose what is in the database now.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup into an empty database, bring its schema up to date and make the cache anew.

    Runs that were running go on as soon as a service is started on it: work that was being done is done again, once.
    Without servers in the settings it is the database of the data directory, which is made if there is none.
    """
    from speciate.cli.archives import check_restorable, read_archive, revision_in
    from speciate.cli.attached import reached_settings
    from speciate.cli.rebuilding import rebuild_cache
    from speciate.storage.migrate import upgrade
    from speciate.storage.stores import open_stores

    revision_in(file)  # before a server is started, and a database made, for a file that is none
    with reached_settings(data_dir) as settings:
        assert settings.database_url is not None  # noqa: S101 - for the type checker: reached settings have both
        url = settings.database_url.get_secret_value()
        revision = check_restorable(url, file, force=force)
        with output.console(stderr=True).status("Restoring …") as status:
            read_archive(url, file, lambda table: status.update(f"Restoring {table} …"))
        stores = open_stores(settings)
        try:
            upgrade(stores.engine)
            rebuilt = rebuild_cache(stores)
        finally:
            stores.close()
    if as_json:
        output.json_line({"file": str(file), "revision": revision, **rebuilt.as_json()})
    else:
        unfinished = output.many(rebuilt.runs, "unfinished run")
        output.say(f"Restored {file} (schema {revision}); {unfinished} to go on with the service.")
