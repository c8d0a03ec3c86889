"""``speciate backup`` and ``speciate restore``: the database as one file in pg_dump's custom format.

Redis is not part of a backup: its contents are rebuilt from PostgreSQL.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import DataDir, command, command_group
from speciate.cli.pg_archive import check_restorable, read_archive, revision_in, write_archive
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.local.servers import available_servers
from speciate.storage.migrate import revision_of, upgrade
from speciate.storage.stores import open_stores

app = command_group()

_File = Annotated[Path, typer.Argument(metavar="FILE", help="Backup file.")]


@command(app, "backup", "speciate backup speciate.dump", "speciate backup /backups/$(date +%F).dump --json")
def backup_command(
    file: _File,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Back up the whole database to a file, while the service runs.

    The file is a consistent snapshot of problems, policies, runs, programs, unlocks, events and tournaments. It is not
    encrypted; only this user may read it. Connects to the configured database or that of the running service, or
    starts the database of the data directory for the duration of the command.
    """
    if os.path.isdir(file):  # noqa: PTH112 - False in a folder of another user
        raise InvalidInputError(f"{file} is a directory.", remedy="Name a file in it.")
    if os.path.exists(file) and not force:  # noqa: PTH110
        raise ConflictError(f"{file} already exists.", remedy="Choose another file, or pass --force.")
    with available_servers(data_dir) as settings, output.console(stderr=True).status("Backing up …"):
        assert settings.database_url is not None  # noqa: S101 - for the type checker
        url = (settings.database_direct_url or settings.database_url).get_secret_value()
        write_archive(url, file)
        revision = revision_of(url)
    if settings.checkpoints.is_dir():
        output.print_note(f"note: weights of learned policies are not in it: copy {settings.checkpoints}, too.")
    size = file.stat().st_size
    output.print_result(
        {"file": str(file), "bytes": size, "revision": revision}, f"{file}: {size:,} bytes, schema {revision}."
    )


@command(
    app,
    "restore",
    "speciate restore speciate.dump --data-dir ./new",
    "SPECIATE_DATABASE_URL=postgresql://… SPECIATE_REDIS_URL=redis://… speciate restore speciate.dump",
)
def restore_command(
    file: _File,
    force: Annotated[bool, typer.Option("--force", help="Replace the current contents of the database.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Restore a backup into an empty database, and upgrade its schema.

    Running runs continue when a service starts on the database; interrupted work is repeated once. Without configured
    servers, restores into the data directory, creating it if necessary.
    """
    revision_in(file)  # validate the file before starting a server and creating a database
    with available_servers(data_dir) as settings:
        assert settings.database_url is not None  # noqa: S101 - for the type checker
        url = (settings.database_direct_url or settings.database_url).get_secret_value()
        revision = check_restorable(url, file, force=force)
        with output.console(stderr=True).status("Restoring …"):
            read_archive(url, file)
        stores = open_stores(settings)
        try:
            upgrade(stores.direct)
            unfinished = len(stores.runs.unfinished())
        finally:
            stores.close()
    runs = output.pluralize(unfinished, "unfinished run")
    output.print_result(
        {"file": str(file), "revision": revision, "runs": unfinished},
        f"Restored {file} (schema {revision}): {runs} will continue when the service starts.",
    )
