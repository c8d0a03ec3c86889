"""What became of one problem version: who unlocked it first, who alone, who never, and its history of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.ports.records.problems import ProblemVersion
from speciate.ports.records.unlocks import (
    Attempt,
    ObjectiveRecord,
    ProblemUnlocks,
    TargetUnlocks,
    UnlockRecord,
    together,
)
from speciate.storage.database import patient, reading
from speciate.storage.ensemble_rows import ALONE, MUTATOR, NAMES
from speciate.storage.progress_row import RUNNING_SECONDS
from speciate.storage.unlocks import UnlockRecords

_ALL: Final = 100_000
_MOST_RECORDS: Final = 1000
# Whoever of an ensemble is named first stands in the run as its policy: that must not tell it from the same ensemble.
_ASKED = f"""SELECT r.id, r.strategy, CASE WHEN {ALONE} THEN a.slug || '@' || a.version END AS policy,
  CASE WHEN {ALONE} THEN b.slug || '@' || b.version END AS mutator, {NAMES} AS ensemble
  FROM runs r JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = {MUTATOR}
  WHERE r.problem_id = :id"""
_KEYS = "asked.policy, asked.mutator, asked.ensemble, asked.strategy"
_TRIED = sa.text(
    f"SELECT {_KEYS}, count(*) AS runs, sum(evaluations) AS evaluations, sum(tokens) AS tokens,"
    f" sum({RUNNING_SECONDS}) AS seconds FROM ({_ASKED}) asked JOIN run_progress g ON g.run_id = asked.id"
    f" GROUP BY {_KEYS} ORDER BY {_KEYS}"
)
_REACHED = sa.text(
    f"SELECT {_KEYS}, c.target, count(*) AS runs FROM ({_ASKED}) asked JOIN claims c ON c.run_id = asked.id"
    f" AND c.state = 'confirmed' GROUP BY {_KEYS}, c.target"
)
# Largest so far, over all runs in the order in which candidates came; ties are no records.
_RECORDS = """
SELECT run_id, number, id AS candidate_id, value, strategy, seed, policy, spent_evaluations AS evaluations, at FROM (
  SELECT c.run_id, c.number, c.id, c.rewards[:at] AS value, c.spent_evaluations, c.created_at AS at, r.strategy,
    (r.spec ->> 'seed')::bigint AS seed, a.slug || '@' || a.version AS policy,
    max({sign} c.rewards[:at]) OVER (ORDER BY c.created_at, c.run_id, c.number
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM candidates c JOIN runs r ON r.id = c.run_id LEFT JOIN policies a ON a.id = c.policy_id
  WHERE r.problem_id = :id AND c.rewards IS NOT NULL AND c.duplicate_of IS NULL
  AND (c.stopped_at <> ALL(cast(:early AS text[]))) IS NOT FALSE{within}) seen
WHERE before IS NULL OR {sign} value > before ORDER BY at DESC, run_id DESC, number DESC LIMIT :limit
"""


class ProblemRecords(UnlockRecords):
    """Reads what became of a problem version."""

    @patient
    def of_problem(self, problem: ProblemVersion) -> ProblemUnlocks:
        """Return who reached which target, and who tried in vain."""
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
            targets=tuple(
                _target(t.name, t.unlock, tried, counts, [first for first in firsts if first.target == t.name])
                for t in problem.definition.targets
            ),
        )

    @patient
    def records(self, problem: ProblemVersion) -> tuple[ObjectiveRecord, ...]:
        """Return the history of records of every objective, objective by objective, the newest first."""
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
                told = {"objective": objective.name, "forgeable": problem.definition.forgeable}
                found += [
                    ObjectiveRecord.model_validate(told | row._asdict()) for row in connection.execute(query, binds)
                ]
        return tuple(found)


def _stages_without(problem: Problem, objective: Objective) -> list[str]:
    """Return the stages whose stopped candidates lack the objective or a constraint: a bad end stands there instead."""
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
    """Return who is asked, and how: an ensemble is all its policies, as nobody's own."""
    return " + ".join(row.ensemble) or together(row.policy, row.mutator), row.strategy


def _target(
    name: str,
    unlock: bool,
    tried: Sequence[sa.Row[Any]],
    counts: dict[tuple[str, str, str], int],
    firsts: Sequence[UnlockRecord],
) -> TargetUnlocks:
    by_key = {(first.who, first.strategy): first for first in firsts}
    earliest = min(firsts, key=lambda first: (first.at, first.run_id), default=None)
    attempts = tuple(
        Attempt(
            policy=" + ".join(row.ensemble) or row.policy,
            mutator=row.mutator,
            strategy=row.strategy,
            runs=row.runs,
            evaluations=int(row.evaluations),
            tokens=int(row.tokens),
            seconds=float(row.seconds),
            reached=counts.get((*_key(row), name), 0),
            unlocked_first=earliest is not None and _key(row) == (earliest.who, earliest.strategy),
            first=by_key.get(_key(row)),
        )
        for row in tried
    )
    who = dict.fromkeys(attempt.who for attempt in attempts)
    reached = dict.fromkeys(attempt.who for attempt in attempts if attempt.reached)
    return TargetUnlocks(
        target=name,
        unlock=unlock,
        first=earliest,
        only=next(iter(reached)) if len(reached) == 1 and len(who) > 1 else None,
        never=tuple(each for each in who if each not in reached),
        attempts=attempts,
    )
