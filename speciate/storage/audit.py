"""The audit log: who asked for what, and what came of it. A trigger refuses to change or delete a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.values import storable
from speciate.ports.access import AuditRecord
from speciate.ports.records import Page
from speciate.storage import cursors
from speciate.storage.database import patient, reading
from speciate.storage.ids import uuid7
from speciate.storage.tables import audit

_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What is written; the fields are those of ``AuditRecord``."""

    who: str
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
        patience_s: Seconds that a call waits for a server that restarts.
    """

    _engine: sa.Engine
    patience_s: float = 5.0

    @patient
    def write(self, entry: AuditEntry) -> None:
        """Append an entry."""
        texts = ("who", "action", "object", "address")
        values: dict[str, Any] = {name: storable(getattr(entry, name))[:_LONGEST] for name in texts}
        values |= {name: getattr(entry, name) for name in ("token_id", "project_id", "status")}
        with self._engine.begin() as connection:
            connection.execute(sa.insert(audit).values(id=uuid7(), **values))

    @patient
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
