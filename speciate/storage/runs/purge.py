"""Remove what was deleted long ago, in small transactions; an interrupted pass continues with the next one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.ids import floor7, uuid7
from speciate.storage.database import reading, with_retries
from speciate.storage.runs.retention import RetentionStore
from speciate.storage.tables import audit

_DUE: Final = {
    # The condition of the partial index.
    "run": "SELECT id FROM runs WHERE deleted_at < :before AND (archived_at IS NOT NULL OR deleted_at IS NOT NULL)"
    " ORDER BY deleted_at",
    "problem": "SELECT id FROM problems p WHERE deleted_at < :before"
    " AND NOT EXISTS (SELECT FROM runs r WHERE r.problem_id = p.id)"
    " AND NOT EXISTS (SELECT FROM problem_set_members m WHERE m.problem_id = p.id)",
    "policy": "SELECT id FROM policies p WHERE deleted_at < :before"
    " AND NOT EXISTS (SELECT FROM runs r WHERE r.policy_id = p.id OR r.mutator_id = p.id)"
    " AND NOT EXISTS (SELECT FROM run_policies e WHERE e.policy_id = p.id)"
    # Its rollouts, which no index finds, name a learned version.
    " AND NOT EXISTS (SELECT FROM runs r WHERE r.id = cast(p.definition -> 'lineage' ->> 'run' AS uuid))",
}
_LOCK: Final = sa.text("SELECT FROM run_progress WHERE run_id = :id FOR UPDATE")
# Every reader of a run joins its progress: without it the run is absent and cannot be restored.
_CLAIM: Final = sa.text(
    "DELETE FROM run_progress WHERE run_id = :id AND EXISTS (SELECT FROM runs WHERE id = :id AND deleted_at < :before)"
)
_CLAIMED: Final = sa.text("SELECT NOT EXISTS (SELECT FROM run_progress WHERE run_id = :id)")
# By primary key, since a run may have a million results.
_RESULTS: Final = sa.text(
    "DELETE FROM results x USING candidates c, runs r, problems p WHERE c.run_id = :id AND c.number >= :first"
    " AND c.number < :end AND r.id = c.run_id AND p.id = r.problem_id AND x.run_id = c.run_id"
    " AND x.evaluator_digest = r.project_id::text || '/' || p.evaluator_digest"
    " AND x.tier = c.tier AND x.program_hash = c.program_hash"
)
# Tables that grow with a run, with an indexed column that counts, and the length of a step.
_COUNTED: Final = (("candidates", "number", 1000), ("rollouts", "batch", 100), ("events", "seq", 1000))
# Finished work is in no index but that of its id, which begins with the time.
_WORK: Final = sa.text(
    "DELETE FROM work WHERE id IN (SELECT id FROM work WHERE run_id = :id AND id >= :floor ORDER BY id LIMIT 5000)"
)
_CREATED: Final = sa.text("SELECT created_at FROM runs WHERE id = :id")
_REMOVE: Final = {
    "run": "DELETE FROM runs WHERE id = :id AND deleted_at < :before RETURNING project_id, id::text AS name",
    "problem": "DELETE FROM problems WHERE id = :id AND deleted_at < :before"
    " RETURNING project_id, slug || '@' || version AS name",
    "policy": "WITH gone AS (DELETE FROM policies WHERE id = :id AND deleted_at < :before RETURNING *), unused AS"
    " (DELETE FROM policy_keys k USING gone WHERE k.id = gone.definition ->> 'api_key_id' AND NOT EXISTS"
    " (SELECT FROM policies p WHERE p.id <> gone.id AND p.definition ->> 'api_key_id' = k.id))"
    " SELECT project_id, slug || '@' || version AS name FROM gone",
}
_IDEMPOTENCY: Final = sa.text("DELETE FROM idempotency_keys WHERE resource_id = :id")
_PROMPTS: Final = sa.text(
    "SELECT digest FROM prompts p WHERE NOT EXISTS (SELECT FROM rollouts r WHERE r.prompt_digest = p.digest)"
)
_PROMPT_STEP: Final = 500
_SKEW_S: Final = 3600.0


@dataclass
class PurgeStore(RetentionStore):
    """Removes deleted runs, problems and policies."""

    @with_retries
    def due(self, before: datetime, kind: str = "run") -> tuple[UUID, ...]:
        """Return what was deleted before a time: runs, or problems or policies that no run refers to."""
        with reading(self._engine) as connection:
            return tuple(connection.execute(sa.text(_DUE[kind]), {"before": before}).scalars())

    def count(self, before: datetime) -> int:
        """Return how much ``purge`` would remove at least: problems and policies may wait for runs."""
        return sum(len(self.due(before, kind)) for kind in _DUE)

    def purge(self, before: datetime, now: datetime, principal: str) -> int:
        """Remove everything that was deleted before a time. Each removal appends an entry to the audit log.

        Args:
            before: Time limit of the deletion.
            now: The current time.
            principal: Author of the audit entries.

        Returns:
            The number of removed runs, problems and policies.
        """
        removed = 0
        for kind in _DUE:  # runs first: problems and policies wait for them
            for each in self.due(before, kind):
                if kind == "run" and not self._empty(each, before):
                    continue
                removed += self._remove(kind, each, before, principal)
        if removed:
            digests, since = self._unused_prompts(), floor7(now.timestamp() - _SKEW_S)
            for start in range(0, len(digests), _PROMPT_STEP):
                self._drop(digests[start : start + _PROMPT_STEP], since)
        return removed

    def _empty(self, run_id: UUID, before: datetime) -> bool:
        """Make a run absent and delete its large tables; return False if it was restored."""
        if not self._claim(run_id, before):
            return False
        for table, column, step in _COUNTED:
            first, last = self._span(run_id, table, column)
            statement = f"DELETE FROM {table} WHERE run_id = :id AND {column} >= :first AND {column} < :end"
            for start in range(first, last + 1, step):
                window = {"id": run_id, "first": start, "end": start + step}
                if table == "candidates":
                    self._step(_RESULTS, window)
                self._step(sa.text(statement), window)
        floor = floor7(self._created(run_id).timestamp() - _SKEW_S)
        while self._step(_WORK, {"id": run_id, "floor": floor}):
            pass
        return True

    @with_retries
    def _claim(self, run_id: UUID, before: datetime) -> bool:
        with self._engine.begin() as connection:
            connection.execute(_LOCK, {"id": run_id})
            connection.execute(_CLAIM, {"id": run_id, "before": before})
            return bool(connection.execute(_CLAIMED, {"id": run_id}).scalar_one())

    @with_retries
    def _span(self, run_id: UUID, table: str, column: str) -> tuple[int, int]:
        query = sa.text(
            f"SELECT (SELECT min({column}) FROM {table} WHERE run_id = :id),"
            f" (SELECT max({column}) FROM {table} WHERE run_id = :id)"
        )
        with reading(self._engine) as connection:
            first, last = connection.execute(query, {"id": run_id}).one()
        return (0, -1) if first is None else (first, last)

    @with_retries
    def _created(self, run_id: UUID) -> datetime:
        with reading(self._engine) as connection:
            created: datetime = connection.execute(_CREATED, {"id": run_id}).scalar_one()
        return created

    @with_retries
    def _remove(self, kind: str, item_id: UUID, before: datetime, principal: str) -> int:
        with self._engine.begin() as connection:
            row = connection.execute(sa.text(_REMOVE[kind]), {"id": item_id, "before": before}).one_or_none()
            if row is None:
                return 0
            connection.execute(_IDEMPOTENCY, {"id": item_id})
            entry: dict[str, Any] = {"principal": principal, "action": f"PURGE {kind}", "object": row.name}
            entry |= {"project_id": row.project_id, "address": "", "status": 200}
            connection.execute(sa.insert(audit).values(id=uuid7(), **entry))
            return 1

    @with_retries
    def _unused_prompts(self) -> list[str]:
        with reading(self._engine) as connection:
            return sorted(connection.execute(_PROMPTS).scalars())
