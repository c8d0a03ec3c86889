"""Dump and restore a PostgreSQL database as one archive, with ``pg_dump`` and ``pg_restore``."""

import os
import re
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, cast

import psycopg
import sqlalchemy as sa

from speciate.domain.errors import ConfigurationError, ConflictError, InvalidInputError, UnavailableError
from speciate.embedded.binaries import find_client
from speciate.embedded.errors import BinariesNotFoundError
from speciate.storage.migrate import NEWEST_REVISION, SchemaState, revision_of, schema_state


def write_archive(url: str, path: Path) -> None:
    """Write a consistent snapshot of the database; the file appears when it is complete."""
    major = _major(url)
    if revision_of(url) is None:
        raise ConfigurationError("the database is empty: nothing to back up.")
    draft = path.with_name(path.name + ".partial")
    try:
        # A new file, and not one or a link that another user of the folder has put there.
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        options = ["--format=custom", "--no-owner", "--no-privileges", "--no-password"]
        options += [f"--file={draft}", f"--dbname={_address(url)}"]
        # The password goes into the environment, which may have one already: all users can read the arguments.
        password = sa.make_url(url).password
        environment = os.environ | {"LC_ALL": "C"} | ({"PGPASSWORD": password} if password else {})
        arguments = [str(find_client("pg_dump", major)), *options]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            raise UnavailableError(f"pg_dump failed: {next(iter(done.stderr.strip().splitlines()), 'no message')}.")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def revision_in(path: Path) -> str:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}.")
    arguments = ["--data-only", "--table=alembic_version", "--file=-", str(path)]
    done = subprocess.run([_pg_restore(), *arguments], capture_output=True, text=True, check=False)
    revision = re.search(r"^COPY public\.alembic_version .*\n(\w+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or revision is None:
        *_, why = ["it has no Speciate schema", *done.stderr.strip().splitlines()]
        raise InvalidInputError(f"{path} is not a backup: {why.removeprefix('pg_restore: error: ').rstrip('.')}.")
    return revision[1]


def check_restorable(url: str, path: Path, *, force: bool) -> str:
    """Check that an archive can be restored into a database, and return the archive's schema revision."""
    revision = revision_in(path)
    state = schema_state(revision)
    if state is SchemaState.UNKNOWN:
        raise ConfigurationError(
            f"{path} has schema {revision} of an unreleased version, which this version cannot read.",
            remedy="Restore a backup that a released version made.",
        )
    if state is SchemaState.NEWER:
        raise ConfigurationError(
            f"{path} has schema {revision}, but this version supports up to {NEWEST_REVISION}.",
            remedy="Upgrade Speciate, then restore.",
        )
    _major(url)
    with psycopg.connect(_address(url, password=True)) as connection:
        tables = "SELECT FROM pg_class WHERE relnamespace = to_regnamespace('public') AND relkind IN ('r', 'p')"
        if not connection.execute(tables).rowcount:
            return revision
        # Not PostgreSQL's own sessions, such as a vacuum, which a restore ends.
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        others = connection.execute(query).rowcount - 1
    if not force:
        raise ConflictError(
            "the database is not empty: restoring would replace its contents.",
            remedy="Restore into an empty database, or pass --force to replace the contents.",
        )
    if others:
        raise ConflictError(f"the database has {others} open connections.", remedy="Stop the service first.")
    return revision


def read_archive(url: str, path: Path) -> None:
    """Replace the contents of a database by an archive in one transaction, so that a failure changes nothing."""
    arguments = [_pg_restore(), "--file=-", "--no-owner", "--no-privileges", str(path)]
    try:
        with (
            psycopg.connect(_address(url, password=True)) as connection,
            subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as archive,
        ):
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            _execute(connection, cast("BinaryIO", archive.stdout))
            _, stderr = archive.communicate()
            if archive.returncode != 0:
                why = stderr.decode(errors="replace").strip().removeprefix("pg_restore: error: ").rstrip(".")
                raise InvalidInputError(f"{path} is damaged: {why}. The database is unchanged.")
    except psycopg.Error as error:
        raise UnavailableError(f"the restore failed, and the database is unchanged: {error}".rstrip()) from None


def _execute(connection: psycopg.Connection, script: BinaryIO) -> None:
    statements = b""
    for line in script:
        if line.startswith(b"COPY ") and line.endswith(b" FROM stdin;\n"):
            connection.execute(statements)
            statements = b""
            with connection.cursor().copy(line) as rows:
                for row in takewhile(bool, iter(script.readline, b"\\.\n")):  # no row: the archive is cut off
                    rows.write(row)
        # Neither commands for psql, nor a setting of PostgreSQL 17 that an older server does not know.
        elif not line.startswith((b"\\", b"SET transaction_timeout")):
            statements += line
    connection.execute(statements)


def _major(url: str) -> int:
    try:
        with psycopg.connect(_address(url, password=True), connect_timeout=5) as connection:
            return connection.info.server_version // 10_000
    except psycopg.OperationalError as error:
        raise UnavailableError(f"PostgreSQL does not respond: {type(error).__name__}.") from None


def _pg_restore() -> str:
    try:
        return str(find_client("pg_restore", 18))  # the newest
    except BinariesNotFoundError:
        return str(find_client("pg_restore", 0))


def _address(url: str, *, password: bool = False) -> str:
    address = sa.make_url(url).set(drivername="postgresql")
    return (address if password else address._replace(password=None)).render_as_string(hide_password=False)
