"""Store problems, problem sets and policies: immutable versions, found by id or name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.ports.records.base import Page
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemSet, ProblemSummary, ProblemVersion
from speciate.storage import cursors
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.rows import named, read_stored, uuid7
from speciate.storage.tables import policies, problem_set_members, problem_sets, problems

# Lists omit the definitions, which hold all cases.
_SUMMARY: Final = (
    problems.c.id,
    problems.c.slug,
    problems.c.version,
    problems.c.digest,
    problems.c.created_at,
    *(problems.c.definition[name].label(name) for name in ("title", "kind", "objectives", "targets")),
)


class Catalog(ScopedStore):
    """Problems, problem sets and policies."""

    @with_retries
    def add_problem(self, problem: Problem) -> tuple[ProblemVersion, bool]:
        """Store a problem; the same definition again is the same version.

        Returns:
            The stored version, and True if it is new.
        """
        extra = {"evaluator_digest": problem.evaluator_digest}
        row, new = self._add(problems, problem.slug, problem.digest, problem.stored_json(), extra)
        return _problem(row), new

    @with_retries
    def add_policy(self, policy: Policy) -> tuple[PolicyVersion, bool]:
        """Store a policy; the same registration again is the same version.

        Returns:
            The stored version, and True if it is new.
        """
        row, new = self._add(policies, policy.slug, policy.digest, policy.stored_json(), {})
        return _policy(row), new

    @with_retries
    def problem(self, name: str | UUID) -> ProblemVersion:
        """Return a problem version by id, by ``slug`` (the newest) or by ``slug@version``.

        Raises:
            NotFoundError: No such problem exists.
        """
        return _problem(self._find(problems, name, "problem"))

    @with_retries
    def problem_ids(self, names: Sequence[str]) -> tuple[UUID, ...]:
        """Return the ids of problem versions by name; see ``problem``."""
        return tuple(self._find(problems, name, "problem", problems.c.id).id for name in names)

    @with_retries
    def policy(self, name: str | UUID) -> PolicyVersion:
        """Return a policy version by id, by ``slug`` (the newest) or by ``slug@version``.

        Raises:
            NotFoundError: No such policy exists.
        """
        return _policy(self._find(policies, name, "policy"))

    @with_retries
    def problems(self, *, slug: str | None = None, limit: int = 100, cursor: str | None = None) -> Page[ProblemSummary]:
        """Return problem versions, newest first, optionally of one slug."""
        return cursors.page(self._rows(problems, slug, limit, cursor, *_SUMMARY), limit, _summary, cursors.by_id)

    @with_retries
    def policies(self, *, slug: str | None = None, limit: int = 100, cursor: str | None = None) -> Page[PolicyVersion]:
        """Return policy versions, newest first, optionally of one slug."""
        return cursors.page(self._rows(policies, slug, limit, cursor), limit, _policy, cursors.by_id)

    def add_problem_set(self, slug: str, title: str, members: Sequence[UUID]) -> ProblemSet:
        """Freeze a list of problem versions under a name.

        Raises:
            ConflictError: The name is taken; a set never changes.
        """
        set_id = uuid7()
        self._add_problem_set(set_id, slug, title, members)
        return self.problem_set(set_id)

    @with_retries
    def _add_problem_set(self, set_id: UUID, slug: str, title: str, members: Sequence[UUID]) -> None:
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

    @with_retries
    def problem_set(self, name: str | UUID) -> ProblemSet:
        """Return a problem set by id or name.

        Raises:
            NotFoundError: No such problem set exists.
        """
        with reading(self._engine) as connection:
            query = sa.select(problem_sets).where(named(problem_sets, name, self.project))
            row = connection.execute(query).one_or_none()
            if row is None:
                raise NotFoundError(f"there is no problem set {str(name)!r}.")
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

    def _add(
        self, table: sa.Table, slug: str, digest: str, definition: dict[str, Any], extra: dict[str, Any]
    ) -> tuple[sa.Row[Any], bool]:
        project = self._home
        same_name = (table.c.project_id == project, table.c.slug == slug)
        same = sa.select(table).where(*same_name, table.c.digest == digest)
        with self._engine.begin() as connection:
            # One writer per name, so that version numbers have no gaps.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"{table.name}:{slug}"))))
            if (row := connection.execute(same).one_or_none()) is not None:
                return row, False
            newest = connection.execute(
                sa.select(sa.func.coalesce(sa.func.max(table.c.version), 0)).where(*same_name)
            ).scalar_one()
            values = {"id": uuid7(), "project_id": project, "slug": slug, "version": newest + 1, "digest": digest}
            row = connection.execute(
                insert(table).values(**values, definition=definition, **extra).returning(table)
            ).one()
            return row, True

    def _find(self, table: sa.Table, name: str | UUID, what: str, *columns: sa.Column[Any]) -> sa.Row[Any]:
        slug, _, version = str(name).partition("@")
        query = sa.select(*columns or (table,)).order_by(table.c.version.desc()).limit(1)
        if version:
            number = int(version) if version.isdecimal() and len(version) < 10 else -1
            query = query.where(named(table, slug, self.project), table.c.version == number)
        else:
            query = query.where(named(table, name, self.project))
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no {what} {str(name)!r}.")
        return row

    def _rows(
        self, table: sa.Table, slug: str | None, limit: int, cursor: str | None, *columns: sa.ColumnElement[Any]
    ) -> Sequence[sa.Row[Any]]:
        query = self._newest(table, limit, cursor, *columns)
        if slug is not None:
            query = query.where(table.c.slug == slug)
        with reading(self._engine) as connection:
            return connection.execute(query).all()

    def _newest(
        self, table: sa.Table, limit: int, cursor: str | None, *columns: sa.ColumnElement[Any]
    ) -> sa.Select[Any]:
        query = cursors.newest_first(table, limit, cursor, *columns)
        return query if self.project is None else query.where(table.c.project_id == self.project)


def _problem(row: sa.Row[Any]) -> ProblemVersion:
    return ProblemVersion(
        id=row.id,
        version=row.version,
        digest=row.digest,
        evaluator_digest=row.evaluator_digest,
        created_at=row.created_at,
        definition=read_stored(Problem, row.definition),
    )


def _summary(row: sa.Row[Any]) -> ProblemSummary:
    return ProblemSummary(
        id=row.id,
        slug=row.slug,
        version=row.version,
        title=row.title,
        kind=row.kind,
        objectives=tuple(objective["name"] for objective in row.objectives),
        targets=tuple(target["name"] for target in row.targets),
        digest=row.digest,
        created_at=row.created_at,
    )


def _policy(row: sa.Row[Any]) -> PolicyVersion:
    return PolicyVersion(
        id=row.id,
        version=row.version,
        digest=row.digest,
        created_at=row.created_at,
        definition=read_stored(Policy, row.definition),
    )
