"""Read the unlock record: reached targets, their cost, and the record history of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.target import ClaimState
from speciate.schema.base import Page
from speciate.schema.problems import ProblemVersion
from speciate.schema.unlocks import (
    Attempt,
    ObjectiveRecord,
    ProblemUnlocks,
    TargetUnlocks,
    UnlockRecord,
    pair_name,
)
from speciate.storage import cursors
from speciate.storage.cursors import where
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.lookup import attested_sql
from speciate.storage.runs.context import ALONE, MUTATOR, NAMES
from speciate.storage.runs.progress import RUNNING_SECONDS

SELECT_UNLOCKS = f"""
SELECT c.run_id, r.problem_id, p.slug AS problem, p.version AS problem_version, r.policy_id, a.slug AS policy,
  a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  {NAMES} AS ensemble, r.strategy, (r.spec ->> 'seed')::bigint AS seed, c.target, c.unlock,
  p.definition ->> 'kind' = 'in_process' AS forgeable, {attested_sql("p.")} AS attested,
  c.state, c.number, d.id AS candidate_id, c.evaluations, c.tokens, c.seconds, r.sources, c.at,
  CASE WHEN o.author IS NOT NULL THEN e.slug || '@' || e.version END AS proposed_by, o.author, o.model,
  CASE WHEN e.definition -> 'lineage' IS NOT NULL THEN e.slug || '@' || e.version END AS learned
FROM claims c JOIN runs r ON r.id = c.run_id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = r.mutator_id
  JOIN candidates d ON d.run_id = c.run_id AND d.number = c.number
  LEFT JOIN rollouts o ON o.id = d.rollout_id LEFT JOIN policies e ON e.id = o.policy_id
"""

# Identity of a run's policies; the order of an ensemble's members does not matter.
_POLICIES = f"coalesce(nullif({NAMES}, '{{}}'), ARRAY[r.policy_id::text, {MUTATOR}::text])"
# No earlier claim of the same policies and strategy on this target of the problem version.
_FIRST = f"""NOT EXISTS (SELECT FROM claims c2 JOIN runs r2 ON r2.id = c2.run_id
  WHERE r2.problem_id = r.problem_id AND r2.deleted_at IS NULL AND r2.strategy = r.strategy
  AND c2.target = c.target AND c2.state = 'confirmed'
  AND (c2.at, c2.run_id) < (c.at, c.run_id) AND {_POLICIES.replace("r.", "r2.")} = {_POLICIES})"""

# One row per target: its cheapest claim.
_CHEAPEST = f"SELECT DISTINCT ON (target) * FROM ({SELECT_UNLOCKS}"
_BY_COST = ") claimed ORDER BY target, evaluations, at, run_id"
# The latest unlocks and those that took fewer evaluations than every earlier one.
_HISTORY = f"""
SELECT * FROM (SELECT claimed.*, count(*) OVER () AS total,
  row_number() OVER (ORDER BY at DESC, run_id DESC, target DESC) AS age,
  min(evaluations) OVER (ORDER BY at, run_id, target ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS fewest
  FROM ({SELECT_UNLOCKS}"""
_LATEST = """) claimed) seen
WHERE age <= :latest OR fewest IS NULL OR evaluations < fewest ORDER BY at, run_id, target
"""

_WINDOW: Final = frozenset({"total", "age", "fewest"})

_ALL: Final = 100_000
_MOST_RECORDS: Final = 1000
# An ensemble has no policy of its own: runs.policy_id is its first member, which depends on the order.
_RUNS = f"""SELECT r.id, r.strategy, CASE WHEN {ALONE} THEN a.slug || '@' || a.version END AS policy,
  CASE WHEN {ALONE} THEN b.slug || '@' || b.version END AS mutator, {NAMES} AS ensemble
  FROM runs r JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = {MUTATOR}
  WHERE r.problem_id = :id AND r.deleted_at IS NULL"""
_KEYS = "tried.policy, tried.mutator, tried.ensemble, tried.strategy"
_TRIED = sa.text(
    f"SELECT {_KEYS}, count(*) AS runs, sum(evaluations) AS evaluations, sum(tokens) AS tokens,"
    f" sum({RUNNING_SECONDS}) AS seconds FROM ({_RUNS}) tried JOIN run_progress g ON g.run_id = tried.id"
    f" GROUP BY {_KEYS} ORDER BY {_KEYS}"
)
_REACHED = sa.text(
    f"SELECT {_KEYS}, c.target, count(*) AS runs FROM ({_RUNS}) tried JOIN claims c ON c.run_id = tried.id"
    f" AND c.state = 'confirmed' GROUP BY {_KEYS}, c.target"
)
# Best so far over all runs, by time of evaluation; ties are no records.
_RECORDS = """
SELECT run_id, number, id AS candidate_id, value, strategy, seed, policy, spent_evaluations AS evaluations, at FROM (
  SELECT c.run_id, c.number, c.id, c.rewards[:at] AS value, c.spent_evaluations, c.created_at AS at, r.strategy,
    (r.spec ->> 'seed')::bigint AS seed, a.slug || '@' || a.version AS policy,
    max({sign} c.rewards[:at]) OVER (ORDER BY c.created_at, c.run_id, c.number
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM candidates c JOIN runs r ON r.id = c.run_id LEFT JOIN policies a ON a.id = c.policy_id
  WHERE r.problem_id = :id AND r.deleted_at IS NULL AND c.rewards IS NOT NULL AND c.duplicate_of IS NULL
  AND (c.stopped_at <> ALL(cast(:early AS text[]))) IS NOT FALSE{within}) seen
WHERE before IS NULL OR {sign} value > before ORDER BY at DESC, run_id DESC, number DESC LIMIT :limit
"""


class UnlockStore(ScopedStore):
    """Reads the unlock record, which the ledger writes."""

    @with_retries
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
        clause, binds = where(
            {
                "c.run_id = :run_id": run_id,
                # A deleted run counts on its own page only.
                ":counted AND r.deleted_at IS NULL": True if run_id is None else None,
                "r.problem_id = :problem_id": problem_id,
                # What several policies reached together is the record of none of them.
                f"{ALONE} AND r.policy_id = :policy_id": policy_id,
                "r.project_id = :project_id": self.project,
                "c.state = :state": state and state.value,
                "r.strategy = :strategy": strategy,
                f":first_only AND c.state = 'confirmed' AND {_FIRST}": first_only or None,
                ":unlocks_only AND c.unlock": unlocks_only or None,
                "(c.run_id < :a OR (c.run_id = :a AND (c.evaluations, c.target) > (:b, :c)))": after[0],
            }
        )
        query = sa.text(SELECT_UNLOCKS + clause + " ORDER BY c.run_id DESC, c.evaluations, c.target LIMIT :limit")
        binds |= {"limit": limit + 1} | ({} if cursor is None else {"b": after[1], "c": after[2]})
        with reading(self._engine) as connection:
            rows = connection.execute(query, binds).all()
        return cursors.page(
            rows,
            limit,
            lambda row: UnlockRecord.model_validate(row._asdict()),
            lambda row: [str(row.run_id), row.evaluations, row.target],
        )

    @with_retries
    def cheapest(self, problem_id: UUID) -> dict[str, UnlockRecord]:
        """Return the confirmed claim with the fewest evaluations of every reached target of a problem version."""
        clause, binds = self._confirmed(problem_id)
        with reading(self._engine) as connection:
            rows = connection.execute(sa.text(_CHEAPEST + clause + _BY_COST), binds).all()
        return {row.target: UnlockRecord.model_validate(row._asdict()) for row in rows}

    @with_retries
    def history(self, problem_id: UUID, *, latest: int) -> tuple[tuple[UnlockRecord, ...], int]:
        """Return the latest confirmed unlocks of a problem version with every earlier record, and the number of all.

        They are in order of time. A record took fewer evaluations than every earlier unlock.
        """
        clause, binds = self._confirmed(problem_id, unlocks_only=True)
        with reading(self._engine) as connection:
            query = sa.text(_HISTORY + clause + _LATEST)
            rows = [row._asdict() for row in connection.execute(query, binds | {"latest": latest})]
        total = rows[0]["total"] if rows else 0
        found = [{name: value for name, value in row.items() if name not in _WINDOW} for row in rows]
        return tuple(map(UnlockRecord.model_validate, found)), total

    def _confirmed(self, problem_id: UUID, *, unlocks_only: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the condition of a problem version's confirmed claims of runs that are not deleted."""
        return where(
            {
                "r.problem_id = :problem_id AND r.deleted_at IS NULL AND c.state = 'confirmed'": problem_id,
                "r.project_id = :project_id": self.project,
                ":unlocks_only AND c.unlock": unlocks_only or None,
            }
        )

    @with_retries
    def of_problem(self, problem: ProblemVersion) -> ProblemUnlocks:
        """Return, by target, the policies and strategies that were tried and those that reached it."""
        with reading(self._engine) as connection:
            tried = connection.execute(_TRIED, {"id": problem.id}).all()
            counts = {
                (*_key(row), row.target): row.runs for row in connection.execute(_REACHED, {"id": problem.id}).all()
            }
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

    @with_retries
    def records(self, problem: ProblemVersion) -> tuple[ObjectiveRecord, ...]:
        """Return the successive best values of every objective, objective by objective, newest first."""
        found: list[ObjectiveRecord] = []
        with reading(self._engine) as connection:
            for i, objective in enumerate(problem.definition.objectives, start=1):
                if objective.role is ObjectiveRole.CONSTRAINT:
                    continue
                sign = "" if objective.direction is Direction.MAXIMIZE else "-"
                query = sa.text(_RECORDS.format(sign=sign, within=_within(problem.definition)))
                early = _stages_without(problem.definition, objective)
                binds = {"id": problem.id, "at": i, "limit": _MOST_RECORDS, "early": early}
                binds |= _limits(problem.definition)
                common = {
                    "objective": objective.name,
                    "forgeable": problem.definition.forgeable,
                    "attested": problem.definition.attested,
                }
                found += [
                    ObjectiveRecord.model_validate(common | row._asdict()) for row in connection.execute(query, binds)
                ]
        return tuple(found)


def _stages_without(problem: Problem, objective: Objective) -> list[str]:
    """Return the stages whose stopped candidates have a placeholder for the objective or a constraint."""
    needed = {objective.name, *(o.name for o in problem.objectives if o.role is ObjectiveRole.CONSTRAINT)}
    measuring = [any(o.name in needed for o in step.objectives) for step in problem.cascade]
    last = max(i for i, measures in enumerate(measuring) if measures)
    return [step.name for step in problem.cascade[: last + 1]]


def _within(problem: Problem) -> str:
    parts = [
        f" AND c.rewards[{i}] {'<=' if objective.direction is Direction.MINIMIZE else '>='} :limit_{i}"
        for i, objective in enumerate(problem.objectives, start=1)
        if objective.role is ObjectiveRole.CONSTRAINT
    ]
    return "".join(parts)


def _limits(problem: Problem) -> dict[str, float]:
    return {
        f"limit_{i}": objective.limit
        for i, objective in enumerate(problem.objectives, start=1)
        if objective.role is ObjectiveRole.CONSTRAINT
    }


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
    first = by_key.get(_key(row))
    return Attempt(
        policy=" + ".join(row.ensemble) or row.policy,
        mutator=row.mutator,
        strategy=row.strategy,
        runs=row.runs,
        evaluations=int(row.evaluations),
        tokens=int(row.tokens),
        seconds=float(row.seconds),
        reached=reached,
        unlocked_first=earliest is not None and _key(row) == (earliest.policy_label, earliest.strategy),
        first=first,
    )
