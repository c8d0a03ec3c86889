"""Addresses of the embedded servers; they contain passwords, so their representation leaves them out."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoints:
    """URLs of PostgreSQL for SQLAlchemy with psycopg 3 (`postgresql+psycopg://user:password@/database?host=/directory`)
    and of Valkey for redis-py (`unix://:password@/directory/valkey.sock`), empty if only PostgreSQL runs.
    """

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
