"""Look up the project that owns a run, candidate, rollout or engine session."""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from service.lru import LruCache
from speciate.storage.database import Store, reading, with_retries

_CACHE_SIZE: Final = 20_000
OWNED: Final = {
    "run_id": ("run", "SELECT project_id FROM runs WHERE id = :id"),
    "candidate_id": (
        "candidate",
        "SELECT r.project_id FROM runs r JOIN candidates c ON c.run_id = r.id WHERE c.id = :id",
    ),
    "rollout_id": ("rollout", "SELECT r.project_id FROM runs r JOIN rollouts o ON o.run_id = r.id WHERE o.id = :id"),
    "session_id": (
        "engine session",
        "SELECT r.project_id FROM runs r JOIN engine_sessions s ON s.run_id = r.id WHERE s.id = :id",
    ),
}
"""Path parameters that are ids, with the name of the object and the query for its project."""


@dataclass
class OwnershipCache(Store):
    """Projects of ids, cached because they never change."""

    _cache: LruCache[UUID, UUID] = field(default_factory=lambda: LruCache(_CACHE_SIZE))

    def known(self, object_id: UUID) -> UUID | None:
        """Return the project if it is cached, without waiting."""
        return self._cache.get(object_id)

    @with_retries
    def find(self, parameter: str, object_id: UUID) -> UUID | None:
        """Return the project of an id from the database, or None if the object does not exist."""
        with reading(self._engine) as connection:
            row = connection.execute(sa.text(OWNED[parameter][1]), {"id": object_id})
            project: UUID | None = row.scalar_one_or_none()
        if project is not None:
            self._cache.put(object_id, project)
        return project
