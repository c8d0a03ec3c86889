"""Addresses of the embedded servers; they contain passwords, so their representation is masked."""

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from speciate.embedded.errors import EmbeddedServerError


@dataclass(frozen=True, repr=False)
class Endpoints:
    """The two addresses that the rest of the house needs.

    Attributes:
        database_url: For SQLAlchemy with psycopg 3, e.g. `postgresql+psycopg://user:password@/database?host=/directory`.
        redis_url: For redis-py, e.g. `unix://:password@/directory/valkey.sock`.
    """

    database_url: str
    redis_url: str

    @property
    def celery_broker_url(self) -> str:
        """The same Valkey as Celery's broker transport wants it spelled."""
        return celery_broker_url(self.redis_url)

    def __repr__(self) -> str:
        return f"Endpoints(database_url={redacted(self.database_url)!r}, redis_url={redacted(self.redis_url)!r})"


def celery_broker_url(redis_url: str, *, database: int = 0) -> str:
    """Return `redis_url` as Celery (kombu) takes it; only unix sockets are spelled differently there.

    Args:
        redis_url: What redis-py takes: `unix://:password@/path`, `redis://…` or `rediss://…`.
        database: Number of the Valkey database, for unix sockets; other URLs carry their own.

    Raises:
        EmbeddedServerError: If the URL is of another kind.
    """
    parts = urlsplit(redis_url)
    match parts.scheme:
        case "redis" | "rediss":
            return redis_url
        case "unix":
            # kombu splits at the "@" itself and reads the database from virtual_host, not from the path.
            return f"redis+socket://{parts.netloc}{parts.path}?{urlencode({'virtual_host': database})}"
        case other:
            raise EmbeddedServerError(f"Redis URL of kind {other!r}: expected redis://, rediss:// or unix://")


def redacted(url: str) -> str:
    """Return the URL with its password replaced by `***`."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url
