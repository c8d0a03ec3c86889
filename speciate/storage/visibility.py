"""Build the SQL of archiving and deleting, which runs, problems and policies share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import ConflictError
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.storage.tables import policies, problems

# The index of hidden runs is partial, so its condition is repeated.
_LISTED: Final = {
    Visibility.VISIBLE: "{0}archived_at IS NULL AND {0}deleted_at IS NULL",
    Visibility.ARCHIVED: "{0}archived_at IS NOT NULL AND {0}deleted_at IS NULL",
    Visibility.DELETED: "{0}deleted_at IS NOT NULL",
    Visibility.ALL: "true",
}
_HIDDEN: Final = " AND ({0}archived_at IS NOT NULL OR {0}deleted_at IS NOT NULL)"


def visibility_condition(visibility: Visibility, alias: str = "") -> str:
    """Return the SQL condition of a list filter.

    Args:
        visibility: Objects to list.
        alias: Alias of the table, with a dot.
    """
    hidden = visibility in {Visibility.ARCHIVED, Visibility.DELETED}
    return (_LISTED[visibility] + _HIDDEN * hidden).format(alias)


def changed_columns(table: sa.Table, change: VisibilityChange) -> dict[str, Any]:
    """Return the columns that a change sets. A repetition keeps the first time."""
    archived, deleted, now = table.c.archived_at, table.c.deleted_at, sa.func.clock_timestamp()
    match change:
        case VisibilityChange.ARCHIVE:
            return {"archived_at": sa.func.coalesce(archived, now)}
        case VisibilityChange.DELETE:
            return {"deleted_at": sa.func.coalesce(deleted, now)}
        case VisibilityChange.RESTORE:
            return {"archived_at": sa.case((deleted.is_not(None), archived)), "deleted_at": None}


_DECLARED_RUN: Final = sa.text(
    "SELECT 'tournament ' || t.slug AS name FROM tournament_runs p JOIN tournaments t ON t.id = p.tournament_id"
    " WHERE p.run_id = :id UNION ALL SELECT 'campaign ' || t.slug FROM campaign_runs p JOIN campaigns t"
    " ON t.id = p.campaign_id WHERE p.run_id = :id"
)
_PROBLEM_USES: Final = sa.text(
    "SELECT 'run' AS kind, r.id::text AS name FROM runs r WHERE r.problem_id = :id AND r.deleted_at IS NULL"
    " UNION ALL SELECT 'problem set', s.slug FROM problem_set_members m JOIN problem_sets s ON s.id = m.set_id"
    " WHERE m.problem_id = :id"
    " UNION ALL SELECT 'tournament', t.slug FROM tournaments t WHERE t.project_id = :project AND EXISTS"
    " (SELECT FROM tournament_runs p WHERE p.tournament_id = t.id AND p.problem = :name)"
    " UNION ALL SELECT 'campaign', t.slug FROM campaigns t WHERE t.project_id = :project AND EXISTS"
    " (SELECT FROM campaign_runs p WHERE p.campaign_id = t.id AND p.problem = :name)"
)
_POLICY_USES: Final = sa.text(
    "SELECT 'run' AS kind, r.id::text AS name FROM runs r WHERE r.deleted_at IS NULL AND r.id IN (SELECT id FROM runs"
    " WHERE policy_id = :id OR mutator_id = :id UNION SELECT run_id FROM run_policies WHERE policy_id = :id)"
    " UNION ALL SELECT 'tournament', slug FROM tournaments WHERE project_id = :project AND jsonb_path_exists("
    "declaration, '$.entrants[*].** ? (@.policy == $name || @.mutator == $name)', jsonb_build_object('name', :name))"
    " UNION ALL SELECT 'campaign', slug FROM campaigns WHERE project_id = :project AND (jsonb_exists("
    "declaration::jsonb -> 'policy', :name) OR jsonb_exists(declaration::jsonb -> 'mutator', :name))"
    # A learned version: the run that wrote it, and the campaign whose runs share it.
    " UNION ALL SELECT 'run', r.id::text FROM policies p JOIN runs r"
    " ON r.id = cast(p.definition -> 'lineage' ->> 'run' AS uuid) WHERE p.id = :id AND r.deleted_at IS NULL"
    " UNION ALL SELECT 'campaign', c.slug FROM policies p JOIN campaigns c ON c.project_id = p.project_id"
    " AND c.slug = p.definition -> 'lineage' ->> 'campaign' WHERE p.id = :id"
).bindparams(sa.bindparam("name", type_=sa.Text))
_USES: Final = {problems.name: _PROBLEM_USES, policies.name: _POLICY_USES}
_MOST_NAMES: Final = 3


def require_undeclared(connection: sa.Connection, run_id: UUID) -> None:
    """Check that no tournament or campaign started a run; raise ``ConflictError`` with its name otherwise."""
    if name := connection.execute(_DECLARED_RUN, {"id": run_id}).scalar():
        raise ConflictError(
            f"run {run_id} cannot be deleted: the results of {name} rest on it.", remedy="Archive it instead."
        )


def require_unused(connection: sa.Connection, table: sa.Table, what: str, row: sa.Row[Any]) -> None:
    """Check that nothing refers to a problem or policy version; raise ``ConflictError`` with the references otherwise.

    Args:
        connection: In the transaction that has locked the row, so that no new run can refer to it.
        table: Problems or policies.
        what: Kind of the object, for the error.
        row: Its id, project, slug and version.
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
    shown = [f"run {name}" for name in runs] if len(runs) <= _MOST_NAMES else [f"{len(runs):,} runs"]
    more = [f"{len(others) - _MOST_NAMES:,} more"] if len(others) > _MOST_NAMES else []
    return ", ".join([*shown, *others[:_MOST_NAMES], *more])
