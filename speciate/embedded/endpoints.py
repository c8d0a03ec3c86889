"""Addresses of the embedded servers; they contain passwords, so their representation is masked."""

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from speciate.embedded.errors import EmbeddedServerError


@dataclass(frozen=True, repr=False)
class Endpoints:
    """URLs of PostgreSQL for SQLAlchemy with psycopg 3 (`postgresql+psycopg://user:password@/database?host=/directory`)
    and of Valkey for redis-py (`unix://:password@/directory/valkey.sock`).
    """

    database_url: str
    redis_url: str

    @property
    def celery_broker_url(self) -> str:
        return celery_broker_url(self.redis_url)

    def __repr__(self) -> str:
        return f"Endpoints(database_url={redacted(self.database_url)!r}, redis_url={redacted(self.redis_url)!r})"


def celery_broker_url(redis_url: str, *, database: int = 0) -> str:
    """Return a URL for redis-py in the form that Celery (kombu) expects; only unix sockets have a different form.

    Args:
        redis_url: `unix://:password@/path`, `redis://…` or `rediss://…`; others raise `EmbeddedServerError`.
        database: Number of the Valkey database for unix sockets; other URLs contain it.
    """
    parts = urlsplit(redis_url)
    match parts.scheme:
        case "redis" | "rediss":
            return redis_url
        case "unix":
            # kombu splits the URL at "@" and reads the database from virtual_host, not from the path.
            return f"redis+socket://{parts.netloc}{parts.path}?{urlencode({'virtual_host': database})}"
        case other:
            raise EmbeddedServerError(f"Redis URL with the scheme {other!r}: expected redis://, rediss:// or unix://")


def redacted(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url
