"""Whose ids are: the projects of runs and of what runs have made."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.storage.database import reading, with_retries

_HELD: Final = 20_000
OWNED: Final = {
    "run_id": ("run", "SELECT project_id FROM runs WHERE id = :id"),
    "candidate_id": (
        "candidate",
        "SELECT r.project_id FROM runs r JOIN candidates c ON c.run_id = r.id WHERE c.id = :id",
    ),
    "rollout_id": ("rollout", "SELECT r.project_id FROM runs r JOIN rollouts o ON o.run_id = r.id WHERE o.id = :id"),
}
"""Parameters of paths that are ids of a run's, what they are called, and how their project is found."""


@dataclass
class OwnershipCache:
    """The projects of ids. They never change, so a process keeps those that it was asked for last.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
    """

    _engine: sa.Engine
    retry_for_s: float = 5.0
    _held: OrderedDict[UUID, UUID] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def known(self, found: UUID) -> UUID | None:
        """Return the project of an id that was asked for before."""
        with self._lock:
            return self._held.get(found)

    @with_retries
    def find(self, parameter: str, found: UUID) -> UUID | None:
        """Return the project of an id, None where there is no such thing."""
        with reading(self._engine) as connection:
            project: UUID | None = connection.execute(sa.text(OWNED[parameter][1]), {"id": found}).scalar_one_or_none()
        if project is not None:
            with self._lock:
                self._held[found] = project
                while len(self._held) > _HELD:
                    self._held.popitem(last=False)
        return project
