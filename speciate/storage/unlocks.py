"""Read the unlock record: reached targets, their cost, and the record history of a problem."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.target import ClaimState
from speciate.schema.base import Page
from speciate.schema.problems import ProblemVersion
from speciate.schema.unlocks import Attempt, ObjectiveRecord, ProblemUnlocks, TargetUnlocks, UnlockRecord, pair_name
from speciate.storage import cursors
from speciate.storage.cursors import where
from speciate.storage.database import ScopedStore
from speciate.storage.lookup import attested_sql
from speciate.storage.statements import Statements

SQL = Statements(__file__, attested=attested_sql("p."))
SELECT_UNLOCKS: Final = SQL.text("claims")
"""SQL for the rows of ``UnlockRecord``; conditions follow."""

_ALL: Final = 100_000
_MOST_RECORDS: Final = 1000


class UnlockStore(ScopedStore):
    """Reads the unlock record, which the ledger writes."""

    def list(
        self,
        *,
        run_id: UUID | None = None,
        problem_id: UUID | None = None,
        policy_id: UUID | None = None,
        strategy: str | None = None,
        unlocks_only: bool = False,
        first_only: bool = False,
        state: ClaimState | None = ClaimState.CONFIRMED,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[UnlockRecord]:
        """Return reached targets, newest run first and within a run the cheapest first.

        With ``first_only``, return only the first confirmed candidate of each problem version, target, policy version
        (with its mutator) and strategy.
        """
        after = [None] * 3 if cursor is None else cursors.decode(cursor, [UUID, int, str])
        alone, is_first = SQL.text("alone"), SQL.text("is_first")
        conditions, binds = where(
            {
                "c.run_id = :run_id": run_id,
                # A deleted run counts on its own page only.
                ":counted AND r.deleted_at IS NULL": True if run_id is None else None,
                "r.problem_id = :problem_id": problem_id,
                # What several policies reached together is the record of none of them.
                f"{alone} AND r.policy_id = :policy_id": policy_id,
                "r.project_id = :project_id": self.project,
                "c.state = :state": state and state.value,
                "r.strategy = :strategy": strategy,
                f":first_only AND c.state = 'confirmed' AND {is_first}": first_only or None,
                ":unlocks_only AND c.unlock": unlocks_only or None,
                "(c.run_id < :a OR (c.run_id = :a AND (c.evaluations, c.target) > (:b, :c)))": after[0],
            }
        )
        query = SQL.build("page", conditions=conditions)
        binds |= {"limit": limit + 1} | ({} if cursor is None else {"b": after[1], "c": after[2]})
        rows = self._rows(query, binds)
        return cursors.page(
            rows,
            limit,
            lambda row: UnlockRecord.model_validate(row._asdict()),
            lambda row: [str(row.run_id), row.evaluations, row.target],
        )

    def cheapest(self, problem_id: UUID) -> dict[str, UnlockRecord]:
        """Return the confirmed claim with the fewest evaluations of every reached target of a problem version."""
        conditions, binds = self._confirmed(problem_id)
        rows = self._rows(SQL.build("cheapest", conditions=conditions), binds)
        return {row.target: UnlockRecord.model_validate(row._asdict()) for row in rows}

    def history(self, problem_id: UUID, *, latest: int) -> tuple[tuple[UnlockRecord, ...], int]:
        """Return the latest confirmed unlocks of a problem version with every earlier record, and the number of all.

        They are in order of time. A record took fewer evaluations than every earlier unlock.
        """
        conditions, binds = self._confirmed(problem_id, unlocks_only=True)
        rows = self._rows(SQL.build("history", conditions=conditions), binds | {"latest": latest})
        return tuple(UnlockRecord.model_validate(row._asdict()) for row in rows), rows[0].total if rows else 0

    def _confirmed(self, problem_id: UUID, *, unlocks_only: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the condition of a problem version's confirmed claims of runs that are not deleted."""
        return where(
            {
                "r.problem_id = :problem_id AND r.deleted_at IS NULL AND c.state = 'confirmed'": problem_id,
                "r.project_id = :project_id": self.project,
                ":unlocks_only AND c.unlock": unlocks_only or None,
            }
        )

    def of_problem(self, problem: ProblemVersion) -> ProblemUnlocks:
        """Return, by target, the policies and strategies that were tried and those that reached it."""
        tried, reached = (self._rows(query, {"id": problem.id}) for query in (SQL.attempts, SQL.reached))
        counts = {(*_key(row), row.target): row.runs for row in reached}
        firsts = self.list(problem_id=problem.id, first_only=True, limit=_ALL).items
        return ProblemUnlocks(
            problem=problem.definition.slug,
            version=problem.version,
            evaluator_digest=problem.evaluator_digest,
            forgeable=problem.definition.forgeable,
            attested=problem.definition.attested,
            targets=tuple(
                _target(t.name, t.unlock, tried, counts, [first for first in firsts if first.target == t.name])
                for t in problem.definition.targets
            ),
        )

    def records(self, problem: ProblemVersion) -> tuple[ObjectiveRecord, ...]:
        """Return the successive best values of every objective, objective by objective, newest first."""
        definition, records = problem.definition, list[ObjectiveRecord]()
        feasible, limits = _feasible(definition)
        query = SQL.build("records", feasible=feasible)
        common = {"forgeable": definition.forgeable, "attested": definition.attested}
        for i, objective in enumerate(definition.objectives, start=1):
            if objective.role is ObjectiveRole.CONSTRAINT:
                continue
            binds = {"id": problem.id, "at": i, "limit": _MOST_RECORDS} | limits
            binds["sign"] = 1 if objective.maximized else -1
            binds["early"] = _stages_without(definition, objective)
            records += [
                ObjectiveRecord.model_validate(common | {"objective": objective.name} | row._asdict())
                for row in self._rows(query, binds)
            ]
        return tuple(records)


def _stages_without(problem: Problem, objective: Objective) -> list[str]:
    """Return the stages whose stopped candidates have a placeholder for the objective or a constraint."""
    needed = {objective.name, *(o.name for o in problem.objectives if o.role is ObjectiveRole.CONSTRAINT)}
    measuring = [any(o.name in needed for o in step.objectives) for step in problem.cascade]
    last = max(i for i, measures in enumerate(measuring) if measures)
    return [step.name for step in problem.cascade[: last + 1]]


def _feasible(problem: Problem) -> tuple[str, dict[str, float]]:
    """Return the SQL condition that all constraints hold, and its values."""
    condition, limits = "", dict[str, float]()
    for i, objective in enumerate(problem.objectives, start=1):
        if objective.role is ObjectiveRole.CONSTRAINT:
            condition += f" AND c.rewards[{i}] {objective.bound} :limit_{i}"
            limits[f"limit_{i}"] = objective.limit
    return condition, limits


def _key(row: sa.Row[Any]) -> tuple[str, str]:
    """Return the policies and the strategy of an attempt; an ensemble is named by all its members."""
    return " + ".join(row.ensemble) or pair_name(row.policy, row.mutator), row.strategy


def _target(
    name: str,
    unlock: bool,
    tried: Sequence[sa.Row[Any]],
    counts: dict[tuple[str, str, str], int],
    firsts: Sequence[UnlockRecord],
) -> TargetUnlocks:
    earliest = min(firsts, key=lambda first: (first.at, first.run_id), default=None)
    attempts = tuple(_attempt(row, counts.get((*_key(row), name), 0), firsts, earliest) for row in tried)
    tested = dict.fromkeys(attempt.policy_label for attempt in attempts)
    reached = dict.fromkeys(attempt.policy_label for attempt in attempts if attempt.reached)
    return TargetUnlocks(
        target=name,
        unlock=unlock,
        first=earliest,
        only=next(iter(reached)) if len(reached) == 1 and len(tested) > 1 else None,
        never=tuple(label for label in tested if label not in reached),
        attempts=attempts,
    )


def _attempt(row: sa.Row[Any], reached: int, firsts: Sequence[UnlockRecord], earliest: UnlockRecord | None) -> Attempt:
    by_key = {(first.policy_label, first.strategy): first for first in firsts}
    values = {
        "policy": " + ".join(row.ensemble) or row.policy,
        "reached": reached,
        "unlocked_first": earliest is not None and _key(row) == (earliest.policy_label, earliest.strategy),
        "first": by_key.get(_key(row)),
    }
    return Attempt.model_validate({**row._asdict(), **values})
