"""A database as one file: pg_dump's custom format, written and read by PostgreSQL's own programs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psycopg
import sqlalchemy as sa

from speciate.domain.errors import ConfigurationError, ConflictError, InvalidInputError, UnavailableError
from speciate.embedded.binaries import find_client
from speciate.embedded.errors import BinariesNotFoundError
from speciate.storage.revision import NEWEST, Standing, revision_of, standing_of

Tell = Callable[[str], None]
"""Is told of each table as it is copied."""

_TABLE: Final = re.compile(r'(?:dumping contents of|processing data for) table "public\.(\w+)"')
_NEWEST_MAJOR: Final = 18


def write_archive(url: str, path: Path, tell: Tell) -> None:
    """Write everything as it is at one moment, whoever works meanwhile; the file appears when it is complete.

    Raises:
        ConfigurationError: There is no ``pg_dump`` for this server, or the database holds no schema of ours.
        InvalidInputError: The file cannot be written.
        UnavailableError: The server went away.
    """
    major = _major(url)
    if revision_of(url) is None:
        raise ConfigurationError("the database is empty: there is nothing to back up.")
    draft = path.with_name(path.name + ".partial")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        options = ["--format=custom", "--no-owner", "--no-privileges", "--verbose", f"--file={draft}"]
        _run("pg_dump", major, [*options, f"--dbname={_address(url)}"], url, tell)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def revision_in(path: Path) -> str:
    """Return the revision of the schema in an archive.

    Raises:
        InvalidInputError: The file is no archive of ours.
    """
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}.")
    wanted = ["--data-only", "--table=alembic_version", "--file=-", str(path)]
    done = subprocess.run([_program("pg_restore", 0), *wanted], capture_output=True, text=True, check=False)
    found = re.search(r"^COPY public\.alembic_version .*\n(\w+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        *_, why = ["it holds no schema of ours", *done.stderr.strip().splitlines()]
        raise InvalidInputError(f"{path} is no backup: {why.removeprefix('pg_restore: error: ').rstrip('.')}.")
    return found[1]


def check_restorable(url: str, path: Path, *, force: bool) -> str:
    """Return the revision of an archive once it is clear that it may go into a database.

    Raises:
        ConfigurationError: It was made by a newer version.
        ConflictError: The database is not empty, or with ``force``, somebody works with it.
        InvalidInputError: The file is no archive of ours.
    """
    revision = revision_in(path)
    if standing_of(revision) is Standing.NEWER:
        raise ConfigurationError(
            f"{path} has schema {revision}, this version knows up to {NEWEST}.", remedy="Upgrade, then restore."
        )
    _major(url)
    if revision_of(url) is None:
        return revision
    if not force:
        raise ConflictError(
            "the database is not empty: restoring would replace all that is in it.",
            remedy="Restore into an empty database, or give --force to lose what is there.",
        )
    with psycopg.connect(_address(url, password=True)) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        others = connection.execute(query).fetchone()
    if others is not None and others[0]:
        raise ConflictError(f"{others[0]} connections work with the database.", remedy="Stop the service before.")
    return revision


def read_archive(url: str, path: Path, tell: Tell) -> None:
    """Put an archive into a database in one transaction; what was there is dropped before.

    Raises:
        ConfigurationError: There is no ``pg_restore`` for this server.
        UnavailableError: It failed; the database is empty then.
    """
    major = _major(url)
    with psycopg.connect(_address(url, password=True), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", "--verbose"]
    _run("pg_restore", major, [*options, f"--dbname={_address(url)}", str(path)], url, tell)


def _major(url: str) -> int:
    try:
        with psycopg.connect(_address(url, password=True), connect_timeout=5) as connection:
            return connection.info.server_version // 10_000
    except psycopg.OperationalError as error:
        raise UnavailableError(f"PostgreSQL does not answer: {type(error).__name__}.") from None


def _run(program: str, major: int, arguments: Sequence[str], url: str, tell: Tell) -> None:
    # The password is seen by nobody in the environment; every user of the machine can read arguments.
    environment = {**os.environ, "PGPASSWORD": sa.make_url(url).password or "", "LC_ALL": "C"}
    command, last = [str(_program(program, major)), *arguments], ""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            for line in process.stderr or ():
                last = line.strip() if "error" in line or not last else last
                if found := _TABLE.search(line):
                    tell(found[1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise UnavailableError(f"{program} failed: {last}.")


def _program(name: str, major: int) -> Path:
    try:
        return find_client(name, major or _NEWEST_MAJOR)
    except BinariesNotFoundError:
        if major:
            raise
        return find_client(name, 0)


def _address(url: str, *, password: bool = False) -> str:
    given = sa.make_url(url).set(drivername="postgresql")
    return (given if password else given._replace(password=None)).render_as_string(hide_password=False)
