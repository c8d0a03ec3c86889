"""The audit log: who asked for what, and what came of it. A trigger refuses to change or delete a row.

Retention alone may take the oldest entries; it says so to the trigger, and what it took is an entry itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.values import storable
from speciate.ports.records.base import Page
from speciate.ports.records.projects import AuditRecord
from speciate.storage import cursors
from speciate.storage.database import reading, with_retries
from speciate.storage.rows import floor7, uuid7
from speciate.storage.tables import audit

_LONGEST: Final = 500
_STEP: Final = 10_000
# By id, which is indexed and made at the same moment.
_OLD: Final = "FROM audit WHERE id < :floor AND at < :before"
_COUNT: Final = sa.text(f"SELECT count(*) {_OLD}")
_ALLOW: Final = sa.text("SET LOCAL speciate.audit_retention = 'on'")
_FORGET: Final = sa.text(
    f"WITH gone AS (DELETE FROM audit WHERE id IN (SELECT id {_OLD} ORDER BY id LIMIT {_STEP}) RETURNING at)"
    " SELECT count(*) AS entries, min(at) AS first, max(at) AS last FROM gone"
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What is written; the fields are those of ``AuditRecord``."""

    principal: str
    token_id: UUID | None
    project_id: UUID | None
    action: str
    object: str
    address: str
    status: int


@dataclass
class AuditLog:
    """Writes and reads the log.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
    """

    _engine: sa.Engine
    retry_for_s: float = 5.0

    @with_retries
    def write(self, entry: AuditEntry) -> None:
        """Append an entry."""
        texts = ("principal", "action", "object", "address")
        values: dict[str, Any] = {name: storable(getattr(entry, name))[:_LONGEST] for name in texts}
        values |= {name: getattr(entry, name) for name in ("token_id", "project_id", "status")}
        with self._engine.begin() as connection:
            connection.execute(sa.insert(audit).values(id=uuid7(), **values))

    @with_retries
    def count_old(self, before: datetime) -> int:
        """Return how many entries are from before a moment."""
        with self._engine.connect() as connection:
            return int(connection.execute(_COUNT, _asked(before)).scalar_one())

    def forget(self, before: datetime, principal: str) -> int:
        """Delete the entries from before a moment, in small transactions; return how many.

        Each of them writes an entry that says how many went and from when they were.

        Args:
            before: The moment.
            principal: Principal that deletes them.
        """
        total = 0
        while went := self._forget_some(before, principal):
            total += went
        return total

    @with_retries
    def _forget_some(self, before: datetime, principal: str) -> int:
        with self._engine.begin() as connection:
            connection.execute(_ALLOW)
            gone = connection.execute(_FORGET, _asked(before)).one()
            if gone.entries:
                span = f"{gone.entries} entries, {gone.first.isoformat()} to {gone.last.isoformat()}"
                values = {
                    "principal": principal,
                    "action": "DELETE audit",
                    "object": span,
                    "address": "",
                    "status": 200,
                }
                connection.execute(sa.insert(audit).values(id=uuid7(), **values))
            return int(gone.entries)

    @with_retries
    def list(self, *, project: UUID | None, limit: int = 100, cursor: str | None = None) -> Page[AuditRecord]:
        """Return entries, newest first: those of a project, or of all and of none."""
        wanted = {
            "a.project_id = :project": project,
            "a.id < :after": cursors.decode_id(cursor) if cursor else None,
        }
        clauses = [clause for clause, value in wanted.items() if value is not None]
        where = " WHERE " + " AND ".join(clauses) if clauses else ""
        binds = {clause.rpartition(":")[2]: value for clause, value in wanted.items() if value is not None}
        query = sa.text(
            "SELECT a.*, p.slug AS project FROM audit a LEFT JOIN projects p ON p.id = a.project_id"
            f"{where} ORDER BY a.id DESC LIMIT :limit"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {**binds, "limit": limit + 1}).all()
        return cursors.page(
            rows, limit, lambda row: AuditRecord.model_validate(row._asdict()), lambda row: [str(row.id)]
        )


def _asked(before: datetime) -> dict[str, Any]:
    return {"before": before, "floor": floor7(before.timestamp())}
