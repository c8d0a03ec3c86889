"""Store problems, problem sets and policies: immutable versions, found by id or name."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.policy import BUILT_IN, Policy
from speciate.domain.problem import Problem
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility, VisibilityChange, require_visible
from speciate.ids import uuid7
from speciate.schema.base import Page
from speciate.schema.policies import PolicyVersion
from speciate.schema.problems import ProblemSet, ProblemSummary, ProblemVersion
from speciate.storage import cursors
from speciate.storage.database import ScopedStore, reading, with_new_id, with_retries
from speciate.storage.lookup import attested_sql, named, not_found, read_stored, require_page_name
from speciate.storage.references import require_unused
from speciate.storage.tables.catalog import policies, problem_set_members, problem_sets, problems
from speciate.storage.visibility import changed_columns, visibility_condition

# Lists omit the definitions, which hold all cases.
_SUMMARY: Final = (
    problems.c.id,
    problems.c.slug,
    problems.c.version,
    problems.c.digest,
    problems.c.created_at,
    problems.c.archived_at,
    problems.c.deleted_at,
    *(problems.c.definition[name].label(name) for name in ("title", "kind", "objectives", "targets")),
    sa.literal_column(attested_sql("problems.")).label("attested"),
)

_BY_KIND: Final = {policy.kind: slug for slug, policy in BUILT_IN.items()}
"""Built-in policies by kind, which users take for the name."""


class Catalog(ScopedStore):
    """Problems, problem sets and policies."""

    def add_problem(self, problem: Problem) -> tuple[ProblemVersion, bool]:
        """Store a problem; return the version, and True if it is new. An equal definition restores its version."""
        extra = {"evaluator_digest": problem.evaluator_digest}
        row, new = self._add(problems, problem.slug, problem.digest, problem.stored_json(), extra)
        return _problem(row), new

    def add_policy(self, policy: Policy) -> tuple[PolicyVersion, bool]:
        """Store a policy; return the version, and True if it is new. An equal registration restores its version."""
        row, new = self._add(policies, policy.slug, policy.digest, policy.stored_json(), {})
        return _policy(row), new

    def has_problem(self, problem: Problem) -> bool:
        """Return True if ``add_problem`` would store nothing."""
        same = (
            problems.c.project_id == self._home,
            problems.c.slug == problem.slug,
            problems.c.digest == problem.digest,
        )
        return self._row(sa.select(problems.c.id).where(*same)) is not None

    def problem(self, name: str | UUID) -> ProblemVersion:
        """Return a problem version by id, by ``slug`` (the newest visible one) or by ``slug@version``."""
        return _problem(self._find(problems, name, "problem"))

    def problem_ids(self, names: Sequence[str]) -> tuple[UUID, ...]:
        """Return the ids of problem versions by name; raises ``ConflictError`` for an archived or deleted one."""
        columns = problems.c["id", "slug", "version", "archived_at", "deleted_at"]
        rows = [self._find(problems, name, "problem", *columns) for name in names]
        for row in rows:
            require_visible(f"problem {row.slug}@{row.version}", row)
        return tuple(row.id for row in rows)

    def policy(self, name: str | UUID) -> PolicyVersion:
        """Return a policy version; names and errors as of ``problem``."""
        try:
            return _policy(self._find(policies, name, "policy"))
        except NotFoundError:
            if name in BUILT_IN:
                return self.add_policy(BUILT_IN[str(name)])[0]
            if (kind := str(name).replace("-", "_")) in _BY_KIND:
                raise NotFoundError(
                    f"there is no policy {name!r}.", remedy=f"Did you mean {_BY_KIND[kind]!r}?"
                ) from None
            raise

    def add_built_in(self) -> None:
        """Add the policies that every project has; archived ones stay archived."""
        for slug in BUILT_IN:
            self.policy(slug)

    def problems(
        self,
        *,
        slug: str | None = None,
        name: str = "",
        visibility: Visibility = Visibility.VISIBLE,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ProblemSummary]:
        """Return problem versions, newest first, optionally of one slug or with a text in the name."""
        rows = self._versions(problems, slug, name, visibility, limit, cursor, *_SUMMARY)
        return cursors.page(rows, limit, _summary, cursors.by_id)

    def policies(
        self,
        *,
        slug: str | None = None,
        name: str = "",
        visibility: Visibility = Visibility.VISIBLE,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[PolicyVersion]:
        """Return policy versions, newest first, optionally of one slug or with a text in the name."""
        return cursors.page(
            self._versions(policies, slug, name, visibility, limit, cursor), limit, _policy, cursors.by_id
        )

    @with_retries
    def change_problem(self, name: str | UUID, change: VisibilityChange) -> tuple[ProblemSummary, ...]:
        """Archive, delete or restore a version, by id or ``slug@version``, or all by ``slug``, and return it or them.

        Raises:
            NotFoundError: No such problem exists.
            ConflictError: A version to delete is in use, or all versions to archive are deleted. Nothing changes.
        """
        return tuple(_summary(row) for row in self._change(problems, name, "problem", change, *_SUMMARY))

    @with_retries
    def change_policy(self, name: str | UUID, change: VisibilityChange) -> tuple[PolicyVersion, ...]:
        """Archive, delete or restore a policy version, or every version of a slug; see ``change_problem``."""
        return tuple(_policy(row) for row in self._change(policies, name, "policy", change, policies))

    @with_new_id
    def add_problem_set(self, set_id: UUID, slug: str, title: str, members: Sequence[UUID]) -> ProblemSet:
        """Freeze a list of problem versions; raises ``ConflictError`` if the name is taken."""
        require_page_name(slug)
        values = {"id": set_id, "project_id": self._home, "slug": slug, "title": title}
        with self._engine.begin() as connection:
            connection.execute(insert(problem_sets).values(values).on_conflict_do_nothing())
            mine = sa.select(problem_sets.c.id).where(problem_sets.c.id == set_id)
            if connection.execute(mine).one_or_none() is None:
                raise ConflictError(
                    f"problem set {slug!r} already exists.", remedy="Sets never change: choose another name."
                )
            rows = [{"set_id": set_id, "ord": i, "problem_id": member} for i, member in enumerate(members)]
            if rows:
                connection.execute(insert(problem_set_members).on_conflict_do_nothing(), rows)
        return self.problem_set(set_id)

    @with_retries
    def problem_set(self, name: str | UUID) -> ProblemSet:
        """Return a problem set by id or name; raises ``NotFoundError`` for an unknown one."""
        with reading(self._engine) as connection:
            query = sa.select(problem_sets).where(named(problem_sets, name, self.project))
            row = connection.execute(query).one_or_none()
            if row is None:
                raise not_found(connection, problem_sets, "problem set", name, self.project)
            return self._with_members(connection, row)

    @with_retries
    def problem_sets(self, *, limit: int = 100, cursor: str | None = None) -> Page[ProblemSet]:
        """Return problem sets, newest first."""
        with reading(self._engine) as connection:
            rows = connection.execute(self._newest(problem_sets, limit, cursor)).all()
            return cursors.page(rows, limit, lambda row: self._with_members(connection, row), cursors.by_id)

    def _with_members(self, connection: sa.Connection, row: sa.Row[Any]) -> ProblemSet:
        query = (
            sa.select(*_SUMMARY)
            .join(problem_set_members, problem_set_members.c.problem_id == problems.c.id)
            .where(problem_set_members.c.set_id == row.id)
            .order_by(problem_set_members.c.ord)
        )
        members = tuple(_summary(member) for member in connection.execute(query))
        return ProblemSet(id=row.id, slug=row.slug, title=row.title, created_at=row.created_at, problems=members)

    @with_retries
    def _add(
        self, table: sa.Table, slug: str, digest: str, definition: dict[str, Any], extra: dict[str, Any]
    ) -> tuple[sa.Row[Any], bool]:
        require_page_name(slug)
        project = self._home
        same_name = (table.c.project_id == project, table.c.slug == slug)
        same = sa.select(table).where(*same_name, table.c.digest == digest)
        with self._engine.begin() as connection:
            # One writer per name, so that version numbers have no gaps.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"{table.name}:{slug}"))))
            if (row := connection.execute(same).one_or_none()) is not None:
                if row.archived_at is not None or row.deleted_at is not None:
                    visible = sa.update(table).where(table.c.id == row.id).values(archived_at=None, deleted_at=None)
                    row = connection.execute(visible.returning(table)).one()
                return row, False
            learned = sa.func.bool_or(table.c.definition["lineage"].is_not(None))
            newest, taken = connection.execute(
                sa.select(sa.func.coalesce(sa.func.max(table.c.version), 0), learned).where(*same_name)
            ).one()
            if taken:
                raise ConflictError(
                    f"policy {slug!r} holds the versions that a run learns: this one would take its next number.",
                    remedy="Register it under another name.",
                )
            values = {"id": uuid7(), "project_id": project, "slug": slug, "version": newest + 1, "digest": digest}
            row = connection.execute(
                insert(table).values(**values, definition=definition, **extra).returning(table)
            ).one()
            return row, True

    @with_retries
    def _find(self, table: sa.Table, name: str | UUID, what: str, *columns: sa.Column[Any]) -> sa.Row[Any]:
        hidden = (table.c.deleted_at.is_not(None), table.c.archived_at.is_not(None))
        query = sa.select(*columns or (table,)).where(self._called(table, name)).limit(1)
        with reading(self._engine) as connection:
            row = connection.execute(query.order_by(*hidden, table.c.version.desc())).one_or_none()
            if row is None:
                raise not_found(connection, table, what, name, self.project)
            return row

    def _called(self, table: sa.Table, name: str | UUID) -> sa.ColumnElement[bool]:
        """Return the condition for a version by id or ``slug@version``, or for all versions of a slug."""
        slug, _, version = str(name).partition("@")
        if not version:
            return named(table, name, self.project)
        number = int(version) if version.isascii() and version.isdecimal() and len(version) < 10 else -1
        return sa.and_(table.c.slug == storable(slug), table.c.project_id == self._home, table.c.version == number)

    def _change(
        self, table: sa.Table, name: str | UUID, what: str, change: VisibilityChange, *columns: Any
    ) -> Sequence[sa.Row[Any]]:
        with self._engine.begin() as connection:
            query = sa.select(*table.c["id", "project_id", "slug", "version", "deleted_at"])
            query = query.where(self._called(table, name)).order_by(table.c.version.desc()).with_for_update()
            rows = connection.execute(query).all()
            if not rows:
                raise not_found(connection, table, what, name, self.project)
            if change is VisibilityChange.ARCHIVE:
                rows = [row for row in rows if row.deleted_at is None]
                if not rows:
                    raise ConflictError(f"{what} {name} is deleted.", remedy="Restore it first.")
            elif change is VisibilityChange.DELETE:
                for row in rows:
                    if row.deleted_at is None:
                        require_unused(connection, table, what, row)
            mine = table.c.id.in_([row.id for row in rows])
            connection.execute(sa.update(table).where(mine).values(changed_columns(table, change)))
            return connection.execute(sa.select(*columns).where(mine).order_by(table.c.version.desc())).all()

    def _versions(
        self,
        table: sa.Table,
        slug: str | None,
        name: str,
        visibility: Visibility,
        limit: int,
        cursor: str | None,
        *columns: sa.ColumnElement[Any],
    ) -> Sequence[sa.Row[Any]]:
        query = self._newest(table, limit, cursor, *columns).where(sa.text(visibility_condition(visibility)))
        if slug is not None:
            query = query.where(table.c.slug == slug)
        if name:
            title = (
                table.c.definition["title"].astext if table is problems else table.c.definition["description"].astext
            )
            query = query.where(sa.func.concat(table.c.slug, " ", title).icontains(name, autoescape=True))
        return self._rows(query)

    def _newest(
        self, table: sa.Table, limit: int, cursor: str | None, *columns: sa.ColumnElement[Any]
    ) -> sa.Select[Any]:
        query = cursors.newest_first(table, limit, cursor, *columns)
        return query if self.project is None else query.where(table.c.project_id == self.project)


def _problem(row: sa.Row[Any]) -> ProblemVersion:
    return ProblemVersion.model_validate({**row._asdict(), "definition": read_stored(Problem, row.definition)})


def _summary(row: sa.Row[Any]) -> ProblemSummary:
    names = {part: tuple(each["name"] for each in getattr(row, part)) for part in ("objectives", "targets")}
    return ProblemSummary.model_validate(row._asdict() | names)


def _policy(row: sa.Row[Any]) -> PolicyVersion:
    return PolicyVersion.model_validate({**row._asdict(), "definition": read_stored(Policy, row.definition)})
