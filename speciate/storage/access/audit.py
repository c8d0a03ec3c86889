"""Store the audit log: who requested what, with which result.

A database trigger refuses to change or delete entries. Only retention may delete the oldest ones, by a setting that the
trigger reads, and it writes an entry about each deletion.
"""

from dataclasses import asdict, dataclass
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
from speciate.storage.database import Store, with_retries, writing_once
from speciate.storage.statements import Statements

SQL = Statements(__file__)

_LONGEST: Final = 500
_STEP: Final = 10_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A new entry; see ``AuditRecord``."""

    principal: str
    action: str
    object: str
    token_id: UUID | None = None
    project_id: UUID | None = None
    address: str = ""
    status: int = 200


def append_entry(connection: sa.Connection, entry: AuditEntry) -> None:
    texts = {name: storable(value)[:_LONGEST] for name, value in asdict(entry).items() if isinstance(value, str)}
    connection.execute(SQL.append, {**asdict(entry), **texts, "id": uuid7()})


class AuditLog(Store):
    """Appends, lists and expires entries."""

    @with_retries
    def write(self, entry: AuditEntry) -> None:
        with writing_once(self._engine) as connection:
            append_entry(connection, entry)

    def count_old(self, before: datetime) -> int:
        return int(self._value(SQL.count_old, _limits(before)))

    def delete_old(self, before: datetime, principal: str) -> int:
        """Delete the entries older than ``before`` in small transactions, and return their number.

        Each transaction appends an entry by ``principal`` with the number and the time span of the deleted ones.
        """
        total = 0
        while deleted := self._delete_some(before, principal):
            total += deleted
        return total

    @with_retries
    def _delete_some(self, before: datetime, principal: str) -> int:
        with self._engine.begin() as connection:
            connection.execute(SQL.allow_deletion)
            deleted = connection.execute(SQL.delete_some, {**_limits(before), "most": _STEP}).one()
            if deleted.entries:
                span = f"{deleted.entries} entries, {deleted.first.isoformat()} to {deleted.last.isoformat()}"
                append_entry(connection, AuditEntry(principal, "DELETE audit", span))
            return int(deleted.entries)

    def list(self, *, project: UUID | None, limit: int = 100, cursor: str | None = None) -> Page[AuditRecord]:
        after = cursors.decode_id(cursor) if cursor else None
        clause, binds = where({"a.project_id = :project": project, "a.id < :after": after})
        rows = self._rows(SQL.build("page", where=clause), {**binds, "limit": limit + 1})
        return cursors.page(rows, limit, lambda row: AuditRecord.model_validate(row._asdict()), cursors.by_id)


def _limits(before: datetime) -> dict[str, Any]:
    return {"before": before, "floor": floor7(before.timestamp())}
