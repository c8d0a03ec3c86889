"""Look up the project that owns a run, candidate or rollout."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.storage.database import reading, with_retries

_CACHE_SIZE: Final = 20_000
OWNED: Final = {
    "run_id": ("run", "SELECT project_id FROM runs WHERE id = :id"),
    "candidate_id": (
        "candidate",
        "SELECT r.project_id FROM runs r JOIN candidates c ON c.run_id = r.id WHERE c.id = :id",
    ),
    "rollout_id": ("rollout", "SELECT r.project_id FROM runs r JOIN rollouts o ON o.run_id = r.id WHERE o.id = :id"),
}
"""Path parameters that are ids, with the name of the object and the query for its project."""


@dataclass
class OwnershipCache:
    """Projects of ids, cached because they never change."""

    _engine: sa.Engine
    retry_for_s: float = 5.0
    _cache: OrderedDict[UUID, UUID] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def known(self, found: UUID) -> UUID | None:
        with self._lock:
            return self._cache.get(found)

    @with_retries
    def find(self, parameter: str, found: UUID) -> UUID | None:
        """Return the project of an id from the database, or None if the object does not exist."""
        with reading(self._engine) as connection:
            project: UUID | None = connection.execute(sa.text(OWNED[parameter][1]), {"id": found}).scalar_one_or_none()
        if project is not None:
            with self._lock:
                self._cache[found] = project
                while len(self._cache) > _CACHE_SIZE:
                    self._cache.popitem(last=False)
        return project
