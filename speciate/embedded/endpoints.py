"""Addresses of the embedded servers; they contain passwords, so their representation is masked."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, repr=False)
class Endpoints:
    """URLs of PostgreSQL for SQLAlchemy with psycopg 3 (`postgresql+psycopg://user:password@/database?host=/directory`)
    and of Valkey for redis-py (`unix://:password@/directory/valkey.sock`), empty if only PostgreSQL runs.
    """

    database_url: str
    redis_url: str

    def __repr__(self) -> str:
        return f"Endpoints(database_url={redacted(self.database_url)!r}, redis_url={redacted(self.redis_url)!r})"


def redacted(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url
