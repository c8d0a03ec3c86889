"""Making the cache in Redis anew from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from uuid import UUID

import redis
from rich.progress import track

from speciate.cli import output
from speciate.domain.errors import UnavailableError
from speciate.storage.candidates.population import EliteRow, stream_elites
from speciate.storage.database import check_version
from speciate.storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was made anew.

    Attributes:
        runs: Unfinished runs.
        elites: Elites of all of them.
    """

    runs: int
    elites: int

    def as_json(self) -> dict[str, int]:
        """Return it as JSON values."""
        return asdict(self)


def rebuild_cache(stores: Stores) -> Rebuilt:
    """Make the archive of every unfinished run anew; what is committed meanwhile is not lost.

    Raises:
        UnavailableError: PostgreSQL or Redis does not answer.
    """
    check_version(stores.engine)
    run_ids = stores.runs.unfinished()
    console = output.console(stderr=True)
    steps = track(run_ids, "Rebuilding", console=console, disable=not console.is_terminal)
    try:
        stores.cache.forget(run_ids)
        elites = sum(stores.cache.rebuild(run_id, partial(_load, stores, run_id)) for run_id in steps)
    except redis.RedisError as error:
        raise UnavailableError(f"Redis does not answer: {error}.", remedy="Check SPECIATE_REDIS_URL.") from None
    return Rebuilt(len(run_ids), elites)


def _load(stores: Stores, run_id: UUID) -> Iterator[EliteRow]:
    with stores.engine.connect() as connection:
        yield from stream_elites(connection, run_id)
