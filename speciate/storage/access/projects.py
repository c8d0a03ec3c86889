"""Store projects and their quotas."""

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.access import Quota
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.values import storable
from speciate.schema.base import Page
from speciate.schema.projects import ProjectRecord, ProjectUsage
from speciate.storage import cursors
from speciate.storage.access.quotas import used_today
from speciate.storage.database import Store, reading, with_new_id, with_retries
from speciate.storage.tables.access import projects


class ProjectStore(Store):
    @with_new_id
    def create(self, new_id: UUID, slug: str, title: str = "", quota: Quota | None = None) -> ProjectRecord:
        """Create a project; raises ``ConflictError`` if the name is taken."""
        values = {"id": new_id, "slug": slug, "title": title, **(quota or Quota()).model_dump()}
        with self._engine.begin() as connection:
            connection.execute(insert(projects).values(values).on_conflict_do_nothing())
            row = connection.execute(sa.select(projects).where(projects.c.id == new_id)).one_or_none()
        if row is None:
            raise ConflictError(f"project {slug!r} already exists.", remedy="Choose another name.")
        return _record(row)

    @with_retries
    def get(self, name: str) -> ProjectRecord:
        """Return a project by name; raises ``NotFoundError`` for an unknown one."""
        with reading(self._engine) as connection:
            return _record(_find(connection, name))

    @with_retries
    def usage(self, name: str) -> ProjectUsage:
        """Return a project with its use of the quotas; raises as ``get`` does."""
        with reading(self._engine) as connection:
            row = _find(connection, name)
            now = sa.func.clock_timestamp()
            today = connection.execute(sa.select(sa.func.date_trunc("day", now, "UTC"))).scalar_one()
            used = used_today(connection, row.id, today)
        return ProjectUsage.model_validate({**_record(row).model_dump(), "used": used})

    def list(self, *, only: UUID | None = None, limit: int = 100, cursor: str | None = None) -> Page[ProjectRecord]:
        """Return projects, oldest first; with ``only``, at most that one."""
        query = sa.select(projects).order_by(projects.c.id).limit(limit + 1)
        if only is not None:
            query = query.where(projects.c.id == only)
        if cursor is not None:
            query = query.where(projects.c.id > cursors.decode_id(cursor))
        return cursors.page(self._rows(query), limit, _record, cursors.by_id)

    @with_retries
    def limit(self, name: str, quota: Quota) -> ProjectRecord:
        """Set the given limits, None for unlimited; raises as ``get`` does."""
        changes = quota.model_dump(include=quota.model_fields_set)
        with self._engine.begin() as connection:
            row = _find(connection, name)
            if changes:
                changed = sa.update(projects).where(projects.c.id == row.id).values(changes).returning(projects)
                row = connection.execute(changed).one()
        return _record(row)


def _find(connection: sa.Connection, name: str) -> sa.Row[Any]:
    row = connection.execute(sa.select(projects).where(projects.c.slug == storable(name))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no project {name[:200]!r}.", remedy="`speciate projects list` shows them.")
    return row


def _record(row: sa.Row[Any]) -> ProjectRecord:
    quota = Quota(**{name: getattr(row, name) for name in Quota.model_fields})
    return ProjectRecord(id=row.id, slug=row.slug, title=row.title, quota=quota, created_at=row.created_at)
