"""Summarize ended runs of tournaments once, as numbers beside the plan; reports read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.dialects.postgresql import JSONB

from speciate.domain.objective import Objective
from speciate.domain.reward import RewardSpace
from speciate.domain.tournament import Tournament
from speciate.schema.declarations import TournamentRecord
from speciate.storage.database import Store, with_retries
from speciate.storage.lookup import read_stored
from speciate.tournaments.report.results import ENDED, MISSING
from speciate.tournaments.report.run_summary import (
    POLICY_NUMBERS,
    RUN_NUMBERS,
    Answers,
    Completions,
    budgets,
    health,
    quality,
)
from speciate.tournaments.statistics.arrays import FloatArray

STATES: Final = {"completed": ENDED, "failed": MISSING, "cancelled": MISSING}
_CHUNK: Final = 200  # runs whose candidates are in memory at a time

_ENDED = """
SELECT r.ord, r.run_id, r.entrant, r.problem, p.state, p.reason, p.evaluations, p.tokens, p.cost, p.evaluated, p.failed,
  p.duplicates, c.evaluations AS hit, c.tokens AS hit_tokens
FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id
  LEFT JOIN claims c ON c.run_id = r.run_id AND c.state = 'confirmed' AND {target}
WHERE r.tournament_id = :id AND NOT r.ended AND p.state IN ('completed', 'failed', 'cancelled')
ORDER BY r.ord LIMIT :limit
"""
_CANDIDATES = sa.text(
    "SELECT c.run_id, a.slug || '@' || a.version AS policy, c.rollout_id, c.rewards, c.scalar, c.spent_evaluations,"
    " c.duplicate_of IS NOT NULL AS duplicate FROM candidates c LEFT JOIN policies a ON a.id = c.policy_id"
    " WHERE c.run_id = ANY(:runs) ORDER BY c.run_id, c.number"
)
_ROLLOUTS = sa.text(
    "SELECT o.run_id, a.slug || '@' || a.version AS policy, o.completion_tokens AS tokens, o.mean_logprob,"
    " o.reason IS NOT NULL AS unreadable FROM rollouts o JOIN policies a ON a.id = o.policy_id"
    " WHERE o.run_id = ANY(:runs) AND o.role IN ('propose', 'mutate') ORDER BY o.run_id, o.batch, o.ord"
)
_SPACES = sa.text(
    "SELECT slug || '@' || version AS name, definition -> 'objectives' AS objectives FROM problems"
    " WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)"
    " AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)"
)
# One writer at a time, so that a reader that has seen a revision has missed nothing before it.
_REVISE = sa.text("UPDATE tournaments SET revision = revision + 1 WHERE id = :id RETURNING revision")
_KEEP = sa.text(
    "UPDATE tournament_runs r SET ended = true, revision = :revision, state = s.state, reason = s.reason,"
    " numbers = s.numbers FROM jsonb_to_recordset(:rows) AS s(ord int, state text, reason text, numbers float8[])"
    " WHERE r.tournament_id = :id AND r.ord = s.ord AND NOT r.ended"
).bindparams(sa.bindparam("rows", type_=JSONB))


@dataclass
class RunSummaries(Store):
    """Writes the summaries of ended runs."""

    def record_ended(self, record: TournamentRecord) -> None:
        """Summarize the runs that have ended since the last call."""
        while self._record_some(record):
            pass

    @with_retries
    def _record_some(self, record: TournamentRecord) -> bool:
        declared = record.declaration
        query = sa.text(_ENDED.format(target="c.unlock" if declared.target is None else "c.target = :target"))
        binds = {"id": record.id, "limit": _CHUNK}
        with self._engine.begin() as connection:
            if declared.target is not None:
                binds["target"] = declared.target
            rows = connection.execute(query, binds).all()
            if not rows:
                return False
            kept = _summaries(connection, record, rows)
            revision = connection.execute(_REVISE, {"id": record.id}).scalar_one()
            connection.execute(_KEEP, {"id": record.id, "revision": revision, "rows": kept})
        return len(rows) == _CHUNK


def _summaries(
    connection: sa.Connection, record: TournamentRecord, rows: Sequence[sa.Row[Any]]
) -> list[dict[str, Any]]:
    declared, runs = record.declaration, {"runs": [row.run_id for row in rows]}
    candidates, rollouts = (_by_run(connection.execute(query, runs)) for query in (_CANDIDATES, _ROLLOUTS))
    found = connection.execute(_SPACES, {"id": record.id, **versions_by_name(row.problem for row in rows)})
    spaces = {each.name: RewardSpace(tuple(read_stored(Objective, o) for o in each.objectives)) for each in found}
    kept = []
    for row in rows:
        positions = {name: i for i, name in enumerate(declared.entrant(row.entrant).policy_names)}
        answers = _answers(candidates.get(row.run_id, ()), spaces[row.problem], positions)
        completions = _completions(rollouts.get(row.run_id, ()), positions)
        numbers = _numbers(declared, row, answers, completions)
        values = [value if np.isfinite(value) else "NaN" for value in numbers.tolist()]  # JSON has no NaN
        kept.append({"ord": row.ord, "state": row.state, "reason": row.reason, "numbers": values})
    return kept


def _by_run(rows: Any) -> Mapping[UUID, list[sa.Row[Any]]]:
    found: dict[UUID, list[sa.Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.run_id, []).append(row)
    return found


def _answers(rows: Sequence[sa.Row[Any]], space: RewardSpace, positions: Mapping[str, int]) -> Answers:
    scored = [row.rewards for row in rows if row.rewards is not None]
    valid = _column(rows, lambda row: row.rewards is not None, np.bool_)
    # An infeasible candidate has not solved the problem: it counts like a failure.
    feasible = space.violation(scored) == 0
    valid[valid] = feasible
    rewards = np.zeros((len(rows), len(space.selected)))
    rewards[valid] = space.normalise(scored)[feasible]
    weighted = _column(rows, lambda row: row.scalar, np.float64)  # None becomes NaN
    scores = np.where(np.isnan(weighted), rewards[:, 0], weighted)
    rollouts = {name: i for i, name in enumerate(dict.fromkeys(row.rollout_id for row in rows if row.rollout_id))}
    return Answers(
        rewards=rewards,
        # A failure counts as the worst declared value: below it, failing would raise the best score of a run.
        scores=np.where(valid, np.maximum(scores, 0.0), 0.0),
        valid=valid,
        spent=_column(rows, lambda row: row.spent_evaluations, np.int64),
        policy=_column(rows, lambda row: positions.get(row.policy, -1), np.int64),
        rollout=_column(rows, lambda row: rollouts.get(row.rollout_id, -1), np.int64),
        duplicate=_column(rows, lambda row: row.duplicate, np.bool_),
    )


def _completions(rows: Sequence[sa.Row[Any]], positions: Mapping[str, int]) -> Completions:
    return Completions(
        policy=_column(rows, lambda row: positions.get(row.policy, -1), np.int64),
        tokens=_column(rows, lambda row: row.tokens, np.float64),
        surprise=-_column(rows, lambda row: row.mean_logprob, np.float64),
        unreadable=_column(rows, lambda row: row.unreadable, np.bool_),
    )


def _column(rows: Sequence[sa.Row[Any]], value: Callable[[sa.Row[Any]], Any], kind: type[Any]) -> NDArray[Any]:
    return np.array([value(row) for row in rows], dtype=kind)


def _numbers(declared: Tournament, row: sa.Row[Any], answers: Answers, completions: Completions) -> FloatArray:
    """Return the numbers of a run in the order of ``Results.fill``; sampled ones are reproducible by the run's seed."""
    rng = np.random.default_rng([int(declared.digest[:16], 16), row.ord])
    found = quality(answers, budgets(declared), rng) | {
        "reached": float(row.hit is not None),
        "evaluations": row.evaluations if row.hit is None else row.hit,
        "tokens": row.tokens if row.hit is None else row.hit_tokens,
        "spent_evaluations": row.evaluations,
        "spent_tokens": row.tokens,
        "cost": row.cost,
        "evaluated": row.evaluated,
        "failed": row.failed,
        "duplicates": row.duplicates,
    }
    most = max(len(entrant.policy_names) for entrant in declared.entrants)
    positions = np.full((most, len(POLICY_NUMBERS)), np.nan)
    for i in range(len(declared.entrant(row.entrant).policy_names)):
        positions[i] = health(answers, completions, i)
    return np.concatenate([[found[name] for name in RUN_NUMBERS], found["best_by"], positions.ravel()])


def versions_by_name(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the query parameters that find versions by name: the names, and the slugs that an index covers."""
    wanted = sorted(set(names))
    return {"names": wanted, "slugs": sorted({name.partition("@")[0] for name in wanted})}
