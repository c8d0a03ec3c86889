"""Reject the deletion of what others refer to."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import ConflictError
from speciate.storage.statements import Statements
from speciate.storage.tables.catalog import policies, problems

SQL = Statements(__file__)
_USES: Final = {problems.name: SQL.problem_uses, policies.name: SQL.policy_uses}
_MOST_NAMES: Final = 3


def require_undeclared(connection: sa.Connection, run_id: UUID) -> None:
    """Check that no tournament or campaign started a run; raise ``ConflictError`` with its name otherwise."""
    if name := connection.execute(SQL.declaration_of_run, {"id": run_id}).scalar():
        raise ConflictError(
            f"run {run_id} cannot be deleted: the results of {name} rest on it.", remedy="Archive it instead."
        )


def require_unused(connection: sa.Connection, table: sa.Table, what: str, row: sa.Row[Any]) -> None:
    """Check that nothing refers to a problem or policy version; raise ``ConflictError`` with the references otherwise.

    The row (id, project, slug and version) must be locked, so that no new run can refer to it. ``what`` is its kind.
    """
    name = f"{row.slug}@{row.version}"
    uses = connection.execute(_USES[table.name], {"id": row.id, "project": row.project_id, "name": name}).all()
    if uses:
        raise ConflictError(
            f"{what} {name} cannot be deleted, it is in use: {_described(uses)}.",
            remedy="Delete these runs first, or archive it instead. Versions of problem sets, tournaments and campaigns"
            " can only be archived.",
        )


def _described(uses: Sequence[sa.Row[Any]]) -> str:
    """Return the kinds and names of the references; only the number of runs if there are many."""
    runs = [use.name for use in uses if use.kind == "run"]
    others = [f"{use.kind} {use.name}" for use in uses if use.kind != "run"]
    names = [f"run {name}" for name in runs] if len(runs) <= _MOST_NAMES else [f"{len(runs):,} runs"]
    more = [f"{len(others) - _MOST_NAMES:,} more"] if len(others) > _MOST_NAMES else []
    return ", ".join([*names, *others[:_MOST_NAMES], *more])
