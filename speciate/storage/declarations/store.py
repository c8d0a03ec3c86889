"""Store declarations: rows that are written once under a name and then change only their state."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.declaration import Declaration, DeclarationKind, DeclarationState, check_transition, paused_with
from speciate.domain.errors import ConflictError
from speciate.domain.values import MAX_REASON, storable
from speciate.domain.webhook import WebhookEvent
from speciate.schema.base import Page
from speciate.schema.declarations import DeclarationRecord
from speciate.storage import cursors
from speciate.storage.database import ScopedStore, reading, with_new_id, with_retries
from speciate.storage.idempotency import claim_key, scoped_key
from speciate.storage.lookup import named, not_found, require_page_name, require_row
from speciate.storage.runs.records import ALL_RUNS, OWN_RUNS
from speciate.storage.statements import Statements
from speciate.storage.tables.access import idempotency_keys
from speciate.storage.webhooks.queue import enqueue

D = TypeVar("D", bound=Declaration)
R = TypeVar("R", bound=DeclarationRecord[Any])


@dataclass
class DeclarationStore(ScopedStore, ABC, Generic[D, R]):
    """Creates, reads and moves the declarations of one kind; a subclass reads its own rows.

    The SQL file of the subclass has the statements ``by_id``, ``page``, ``pending`` and ``adopt_paused``.
    """

    kind: ClassVar[DeclarationKind]
    _table: ClassVar[sa.Table]
    sql: ClassVar[Statements]

    @abstractmethod
    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> R:
        """Return the record of a row as lists show it."""

    @abstractmethod
    def _fill(self, connection: sa.Connection, new_id: UUID, declared: D) -> None:
        """Check the project's quota and write the rows that belong to a new declaration."""

    def _detailed(self, connection: sa.Connection, row: sa.Row[Any]) -> R:
        """Return the record of a row as ``get`` returns it."""
        return self._record(connection, row)

    def _has_open_work(self, connection: sa.Connection, declared_id: UUID) -> bool:  # noqa: ARG002
        """True if work of the declaration keeps it from being completed without a reason."""
        return False

    def earlier(self, key: str | None, digest: str) -> UUID | None:
        """Return what an equal request with this key declared before, whatever was archived since."""
        keys = idempotency_keys.c
        same = (keys.key == scoped_key(self._home, key or " "), keys.request_digest == digest)
        return cast("UUID | None", self._value(sa.select(keys.resource_id).where(*same)))

    @with_new_id
    def create(
        self, new_id: UUID, declared: D, *, request_digest: str, idempotency_key: str | None = None
    ) -> tuple[UUID, bool]:
        """Store a pinned declaration, which runs at once; return its id, and False if an equal one was stored.

        ``ConflictError`` if another has the name, or the key was used for another request.
        """
        require_page_name(declared.slug, OWN_RUNS, ALL_RUNS)
        key = None if idempotency_key is None else scoped_key(self._home, idempotency_key)
        with self._engine.begin() as connection:
            if key is not None:
                claimed_id = claim_key(connection, key, request_digest, new_id)
                if claimed_id != new_id:
                    return claimed_id, False
            values = {
                "id": new_id,
                "project_id": self._home,
                "slug": declared.slug,
                "digest": declared.digest,
                "declaration": declared.stored_json(),
                "state": DeclarationState.RUNNING,
            }
            statement = insert(self._table).values(values).on_conflict_do_nothing().returning(self._table.c.id)
            if connection.execute(statement).one_or_none() is not None:
                self._fill(connection, new_id, declared)
                return new_id, True
            same_name = sa.and_(self._table.c.project_id == self._home, self._table.c.slug == declared.slug)
            row = connection.execute(sa.select(self._table).where(same_name)).one()
            if row.digest != declared.digest:
                raise ConflictError(
                    f"there is already a {self.kind} {declared.slug!r} with another declaration.",
                    remedy="Declarations are immutable: choose another name.",
                )
            if key is not None and row.id != new_id:
                mine = sa.update(idempotency_keys).where(idempotency_keys.c.key == key)
                connection.execute(mine.values(resource_id=row.id))
            return row.id, row.id == new_id

    @with_retries
    def get(self, name: str | UUID) -> R:
        """Return a declaration by id or name; raises ``NotFoundError`` for an unknown one."""
        with reading(self._engine) as connection:
            query = sa.select(self._table.c.id).where(named(self._table, name, self.project))
            row = self._read(connection, connection.execute(query).scalar_one_or_none())
            if row is None:
                raise not_found(connection, self._table, self.kind, name, self.project)
            return self._detailed(connection, row)

    def _read(self, connection: sa.Connection, declared_id: UUID | None) -> sa.Row[Any] | None:
        return connection.execute(self.sql.by_id, {"id": declared_id}).one_or_none()

    @with_retries
    def list(self, *, state: DeclarationState | None = None, limit: int = 100, cursor: str | None = None) -> Page[R]:
        """Return a page of declarations, newest first."""
        conditions, binds = cursors.where(
            {
                "state = :state": state,
                "id < :after": cursors.decode_id(cursor) if cursor else None,
                "project_id = :project": self.project,
            }
        )
        query = self.sql.build("page", conditions=conditions)
        with reading(self._engine) as connection:
            rows = connection.execute(query, {**binds, "limit": limit + 1}).all()
            return cursors.page(rows, limit, lambda row: self._record(connection, row), cursors.by_id)

    def project_of(self, declared_id: UUID) -> UUID:
        return cast("UUID", self._value(sa.select(self._table.c.project_id).where(self._table.c.id == declared_id)))

    def pending(self) -> tuple[UUID, ...]:
        """Return the declarations that the controller must look at."""
        return tuple(row[0] for row in self._rows(self.sql.pending))

    @with_retries
    def move(
        self, declared_id: UUID, goal: DeclarationState, reason: str | None = None, *, fault: bool = False
    ) -> None:
        """Pause, resume or cancel a declaration; its controller then moves its runs.

        With ``fault`` the controller pauses it after an error: webhooks receive an alarm. Raises ``NotFoundError`` for
        an unknown one, and ``ConflictError`` if its state does not allow the transition.
        """
        with self._engine.begin() as connection:
            row = self._lock(connection, declared_id)
            check_transition(self.kind, row.slug, DeclarationState(row.state), goal)
            self._set_state(connection, declared_id, goal, reason)
            if fault:
                data = {"name": f"{self.kind}.paused", "message": reason, self.kind.value: row.slug}
                enqueue(connection, WebhookEvent.ALARM, row.project_id, data)
            if goal is DeclarationState.RUNNING:
                reason = paused_with(self.kind, row.slug)
                connection.execute(self.sql.adopt_paused, {"id": declared_id, "reason": reason})

    @with_retries
    def complete(self, declared_id: UUID, reason: str | None = None) -> bool:
        """Complete a declaration: at once with a reason, else if it has no open work; return True if it was."""
        with self._engine.begin() as connection:
            row = self._lock(connection, declared_id)
            if DeclarationState(row.state).ended or (reason is None and self._has_open_work(connection, declared_id)):
                return False
            self._set_state(connection, declared_id, DeclarationState.COMPLETED, reason)
            return True

    def wait(self, declared_id: UUID, reason: str | None) -> None:
        """Record why a running declaration starts nothing, or None if it does not wait."""
        columns = self._table.c
        waits = sa.and_(
            columns.id == declared_id,
            columns.state == DeclarationState.RUNNING,
            columns.reason.is_distinct_from(reason),
        )
        self._execute(sa.update(self._table).where(waits).values(reason=reason))

    def _lock(self, connection: sa.Connection, declared_id: UUID) -> sa.Row[Any]:
        query = sa.select(self._table).where(self._table.c.id == declared_id).with_for_update()
        return require_row(connection.execute(query).one_or_none(), f"{self.kind} {declared_id}")

    def _set_state(
        self, connection: sa.Connection, declared_id: UUID, state: DeclarationState, reason: str | None
    ) -> None:
        values = {
            "state": state,
            "reason": None if reason is None else storable(reason)[:MAX_REASON],
            "finished_at": sa.func.now() if state.ended else None,
        }
        connection.execute(sa.update(self._table).where(self._table.c.id == declared_id).values(values))
