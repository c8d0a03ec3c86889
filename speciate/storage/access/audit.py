"""Store the audit log: who requested what, with which result.

A database trigger refuses to change or delete entries. Only retention may delete the oldest ones, by a setting that the
trigger reads, and it writes an entry about each deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.values import storable
from speciate.ids import floor7, uuid7
from speciate.schema.base import Page
from speciate.schema.projects import AuditRecord
from speciate.storage import cursors
from speciate.storage.cursors import where
from speciate.storage.database import Store, reading, with_retries, writing_once
from speciate.storage.tables import audit

_LONGEST: Final = 500
_STEP: Final = 10_000
# By id, which is indexed and as old as the entry.
_OLD: Final = "FROM audit WHERE id < :floor AND at < :before"
_COUNT: Final = sa.text(f"SELECT count(*) {_OLD}")
_ALLOW: Final = sa.text("SET LOCAL speciate.audit_retention = 'on'")
_DELETE: Final = sa.text(
    f"WITH deleted AS (DELETE FROM audit WHERE id IN (SELECT id {_OLD} ORDER BY id LIMIT {_STEP}) RETURNING at)"
    " SELECT count(*) AS entries, min(at) AS first, max(at) AS last FROM deleted"
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A new entry; see ``AuditRecord``."""

    principal: str
    token_id: UUID | None
    project_id: UUID | None
    action: str
    object: str
    address: str
    status: int


class AuditLog(Store):
    """Appends, lists and expires entries."""

    @with_retries
    def write(self, entry: AuditEntry) -> None:
        """Append an entry."""
        texts = ("principal", "action", "object", "address")
        values: dict[str, Any] = {name: storable(getattr(entry, name))[:_LONGEST] for name in texts}
        values |= {name: getattr(entry, name) for name in ("token_id", "project_id", "status")}
        with writing_once(self._engine) as connection:
            connection.execute(sa.insert(audit).values(id=uuid7(), **values))

    @with_retries
    def count_old(self, before: datetime) -> int:
        """Return the number of entries older than ``before``."""
        with reading(self._engine) as connection:
            return int(connection.execute(_COUNT, _limits(before)).scalar_one())

    def delete_old(self, before: datetime, principal: str) -> int:
        """Delete the entries older than ``before`` in small transactions, and return their number.

        Each transaction appends an entry with the number and the time span of the deleted ones.

        Args:
            before: Age limit.
            principal: Author of the new entries.
        """
        total = 0
        while deleted := self._delete_some(before, principal):
            total += deleted
        return total

    @with_retries
    def _delete_some(self, before: datetime, principal: str) -> int:
        with self._engine.begin() as connection:
            connection.execute(_ALLOW)
            deleted = connection.execute(_DELETE, _limits(before)).one()
            if deleted.entries:
                span = f"{deleted.entries} entries, {deleted.first.isoformat()} to {deleted.last.isoformat()}"
                values = {
                    "principal": principal,
                    "action": "DELETE audit",
                    "object": span,
                    "address": "",
                    "status": 200,
                }
                connection.execute(sa.insert(audit).values(id=uuid7(), **values))
            return int(deleted.entries)

    @with_retries
    def list(self, *, project: UUID | None, limit: int = 100, cursor: str | None = None) -> Page[AuditRecord]:
        """Return entries, newest first, of one project or of the whole installation."""
        after = cursors.decode_id(cursor) if cursor else None
        clause, binds = where({"a.project_id = :project": project, "a.id < :after": after})
        query = sa.text(
            "SELECT a.*, p.slug AS project FROM audit a LEFT JOIN projects p ON p.id = a.project_id"
            f"{clause} ORDER BY a.id DESC LIMIT :limit"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {**binds, "limit": limit + 1}).all()
        return cursors.page(rows, limit, lambda row: AuditRecord.model_validate(row._asdict()), cursors.by_id)


def _limits(before: datetime) -> dict[str, Any]:
    return {"before": before, "floor": floor7(before.timestamp())}
