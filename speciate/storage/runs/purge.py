"""Remove what was deleted long ago, each object in one transaction; an interrupted pass continues with the next one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.ids import floor7
from speciate.storage.access.audit import AuditEntry, append_entry
from speciate.storage.database import with_retries
from speciate.storage.runs.retention import RetentionStore
from speciate.storage.statements import Statements

SQL = Statements(__file__)

_DUE: Final = {"run": SQL.due_runs, "problem": SQL.due_problems, "policy": SQL.due_policies}
"""Runs first: problems and policies wait for them."""
_REMOVE: Final = {"run": SQL.remove_run, "problem": SQL.remove_problem, "policy": SQL.remove_policy}
_SKEW_S: Final = 3600.0


@dataclass
class PurgeStore(RetentionStore):
    """Removes deleted runs, problems and policies."""

    def _due(self, before: datetime, kind: str) -> tuple[UUID, ...]:
        return tuple(row[0] for row in self._rows(_DUE[kind], {"before": before}))

    def count(self, before: datetime) -> int:
        """Return how much ``purge`` would remove at least: problems and policies may wait for runs."""
        return sum(len(self._due(before, kind)) for kind in _DUE)

    def purge(self, before: datetime, now: datetime, principal: str) -> int:
        """Remove what was deleted before a time, and return the number of removed runs, problems and policies.

        Each removal appends an entry by ``principal`` to the audit log.
        """
        removed = sum(self._remove(kind, each, before, principal) for kind in _DUE for each in self._due(before, kind))
        if removed:
            orphans, since = self._rows(SQL.orphaned_prompts), floor7(now.timestamp() - _SKEW_S)
            self._drop_prompts(orphans, since)
        return removed

    @with_retries
    def _remove(self, kind: str, item_id: UUID, before: datetime, principal: str) -> int:
        with self._engine.begin() as connection:
            row = connection.execute(_REMOVE[kind], {"id": item_id, "before": before}).one_or_none()
            if row is None:
                return 0
            connection.execute(SQL.delete_keys, {"id": item_id})
            append_entry(connection, AuditEntry(principal, f"PURGE {kind}", row.name, project_id=row.project_id))
            return 1
