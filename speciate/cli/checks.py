"""What ``speciate doctor`` looks at: every check is a function that returns what it found and how to mend it."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import SecretStr

from speciate.domain.errors import SpeciateError
from speciate.settings import CONFIG_VARIABLE, FILE_SUFFIX, SERVE_TOKEN_VARIABLE, Settings, source_of

OLDEST_PYTHON: Final = (3, 11)
_SERVER_VARIABLES: Final = ("SPECIATE_POSTGRES_BIN", "SPECIATE_POSTGRES_USER", "SPECIATE_VALKEY_BIN")
_COMPOSE_VARIABLES: Final = ("SPECIATE_VERSION", "SPECIATE_BIND", "SPECIATE_SECRETS")
"""Read by ``docker-compose.yml`` alone."""
LITTLE_SPACE_BYTES: Final = 1 << 30


class Status(StrEnum):
    """What a check found."""

    GOOD = "good"
    WARNING = "warning"
    """It works without, but somebody may miss it."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check.

    Attributes:
        name: What was looked at.
        status: Whether it is well.
        detail: What was found.
        remedy: How to mend it; empty when it is well.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {name: str(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting with its value (masked when it is secret) and where it came from."""

    name: str
    value: str
    source: str


def effective_settings(settings: Settings, flags: dict[str, Any]) -> list[EffectiveSetting]:
    """Return every setting; an address that holds a password is masked whole."""
    return [
        EffectiveSetting(name, _shown(getattr(settings, name)), source_of(name, flags))
        for name in Settings.model_fields
    ]


def python() -> Finding:
    """Look at the version of Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", Status.BAD, version, "Install Python 3.11 or newer.")
    return Finding("python", Status.GOOD, version)


def environment() -> Finding:
    """Look for variables that begin like ours and that nobody reads: a typing mistake leaves a setting as it was."""
    values = [*(f"SPECIATE_{name.upper()}" for name in Settings.model_fields), SERVE_TOKEN_VARIABLE]
    known = [
        *values,
        *(value + FILE_SUFFIX for value in values),
        CONFIG_VARIABLE,
        *_SERVER_VARIABLES,
        *_COMPOSE_VARIABLES,
    ]
    unknown = sorted(name for name in os.environ if name.upper().startswith("SPECIATE_") and name.upper() not in known)
    if not unknown:
        return Finding("environment", Status.GOOD, "every SPECIATE_* variable is known")
    nearest = [each for name in unknown for each in difflib.get_close_matches(name.upper(), known, n=1)]
    remedy = f"Perhaps meant: {', '.join(nearest)}." if nearest else f"Known: {', '.join(values)}."
    return Finding("environment", Status.WARNING, f"nobody reads {', '.join(unknown)}", remedy)


def data_dir(settings: Settings) -> Finding:
    """Look whether embedded servers can keep their data."""
    path = settings.data_dir
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding("data", Status.BAD, f"{path} cannot be written", "Choose another with SPECIATE_DATA_DIR.")
    free = shutil.disk_usage(there).free
    detail = f"{path}, {free / 2**30:.1f} GiB free"
    if free < LITTLE_SPACE_BYTES:
        return Finding("data", Status.WARNING, detail, "Free some space: runs pause when the disk is full.")
    return Finding("data", Status.GOOD, detail)


def database(settings: Settings) -> Finding:
    """Look for PostgreSQL: the configured server, or programs for an embedded one."""
    if settings.database_url is None:
        return finding_of("postgres", _embedded_postgres)
    url = settings.database_url.get_secret_value()
    return finding_of("postgres", lambda: _configured_postgres(url))


def cache(settings: Settings) -> Finding:
    """Look for Redis or Valkey: the configured server, or a program for an embedded one."""
    if settings.redis_url is None:
        return finding_of("redis", _embedded_valkey)
    url = settings.redis_url.get_secret_value()
    return finding_of("redis", lambda: _configured_redis(url))


def finding_of(name: str, look: Callable[[], str]) -> Finding:
    """Return what a look says, or the error that ended it."""
    try:
        return Finding(name, Status.GOOD, look())
    except SpeciateError as error:
        return failed(name, Status.BAD, error)


def failed(name: str, status: Status, error: SpeciateError) -> Finding:
    """Return what an error says as a finding."""
    remedy = error.remedy or ""
    return Finding(name, status, str(error).removesuffix(remedy).strip(), remedy)


def _embedded_postgres() -> str:
    from speciate.embedded.binaries import find_postgres

    found = find_postgres()
    return f"embedded, PostgreSQL {found.version} in {found.bin_dir}"


def _embedded_valkey() -> str:
    from speciate.embedded.binaries import find_valkey

    return f"embedded, {find_valkey()}"


def _configured_postgres(url: str) -> str:
    from speciate.storage.database import check_version, connect

    engine = connect(url, pool_size=2)
    try:
        return f"configured, PostgreSQL {check_version(engine)}"
    finally:
        engine.dispose()


def _configured_redis(url: str) -> str:
    import redis

    from speciate.domain.errors import ConfigurationError, UnavailableError

    try:
        with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            info = client.info("server")
    except ValueError as error:
        raise ConfigurationError(f"the address is none: {error}.", remedy="Check SPECIATE_REDIS_URL.") from None
    except redis.RedisError as error:
        raise UnavailableError(f"the server does not answer: {error}.", remedy="Check SPECIATE_REDIS_URL.") from None
    version = info.get("valkey_version") or info.get("redis_version")
    return f"configured, {info.get('server_name', 'redis')} {version}"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return "********" if isinstance(value, SecretStr) else str(value)
