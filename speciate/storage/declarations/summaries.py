"""Summarize ended runs of tournaments once, as numbers beside the plan; reports read nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Objective
from speciate.domain.reward import RewardSpace
from speciate.domain.tournament import Tournament
from speciate.schema.declarations import TournamentRecord
from speciate.storage.database import Store, with_retries
from speciate.storage.lookup import read_stored
from speciate.storage.statements import Statements
from speciate.tournaments.report.run_summary import (
    POLICY_NUMBERS,
    RUN_NUMBERS,
    Answers,
    Completions,
    budgets,
    health,
    quality,
)

_CHUNK: Final = 200  # runs whose candidates are in memory at a time
_LARGEST: Final = 1e100
"""Largest score of a run: sums and squares of larger ones overflow."""

SQL = Statements(__file__)


@dataclass
class RunSummaries(Store):
    def record_ended(self, record: TournamentRecord) -> None:
        """Summarize the runs that have ended since the last call."""
        while self._record_some(record):
            pass

    @with_retries
    def _record_some(self, record: TournamentRecord) -> bool:
        keys = {"id": record.id, "limit": _CHUNK, "target": record.declaration.target}
        with self._engine.begin() as connection:
            rows = connection.execute(SQL.ended, keys).all()
            if not rows:
                return False
            summaries = _summaries(connection, record, rows)
            revision = connection.execute(SQL.next_revision, {"id": record.id}).scalar_one()
            connection.execute(SQL.store, {"id": record.id, "revision": revision, "rows": summaries})
        return len(rows) == _CHUNK


def _summaries(
    connection: sa.Connection, record: TournamentRecord, rows: Sequence[sa.Row[Any]]
) -> list[dict[str, Any]]:
    declared, runs = record.declaration, {"runs": [row.run_id for row in rows]}
    candidates, rollouts = (_by_run(connection.execute(query, runs)) for query in (SQL.candidates, SQL.rollouts))
    problems = connection.execute(SQL.objectives, {"id": record.id, **versions_by_name(row.problem for row in rows)})
    spaces = {
        each.name: (RewardSpace(tuple(read_stored(Objective, o) for o in each.objectives)), each.weights)
        for each in problems
    }
    summaries = []
    for row in rows:
        positions = {name: i for i, name in enumerate(declared.entrant(row.entrant).policy_names)}
        space, weights = spaces[row.problem]
        answers = _answers(candidates.get(row.run_id, ()), space, positions)
        completions = _completions(rollouts.get(row.run_id, ()), positions)
        numbers = _numbers(declared, row, answers, completions, final_score(row.final, space, weights))
        values = [value if np.isfinite(value) else "NaN" for value in numbers.tolist()]  # JSON has no NaN
        summaries.append({"ord": row.ord, "state": row.state, "reason": row.reason, "numbers": values})
    return summaries


def _by_run(rows: Any) -> Mapping[UUID, list[sa.Row[Any]]]:
    by_run: dict[UUID, list[sa.Row[Any]]] = {}
    for row in rows:
        by_run.setdefault(row.run_id, []).append(row)
    return by_run


def _answers(rows: Sequence[sa.Row[Any]], space: RewardSpace, positions: Mapping[str, int]) -> Answers:
    scored = [row.rewards for row in rows if row.rewards is not None]
    valid = _column(rows, lambda row: row.rewards is not None, np.bool_)
    # An infeasible candidate has not solved the problem: it counts like a failure.
    feasible = space.violation(scored) == 0
    valid[valid] = feasible
    rewards = np.zeros((len(rows), len(space.selected)))
    rewards[valid] = space.normalise(scored)[feasible]
    weighted = _column(rows, lambda row: row.scalar, np.float64)  # None becomes NaN
    scores = np.where(np.isnan(weighted), np.maximum(rewards, 0.0).mean(axis=1), weighted)
    rollouts = {name: i for i, name in enumerate(dict.fromkeys(row.rollout_id for row in rows if row.rollout_id))}
    return Answers(
        rewards=rewards,
        # A failure counts as the worst declared value: below it, failing would raise the best score of a run.
        scores=np.where(valid, np.clip(scores, 0.0, _LARGEST), 0.0),
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


def final_score(final: Mapping[str, Any], space: RewardSpace, weights: Mapping[str, float] | None) -> dict[str, float]:
    """Return score and margin of the run of a noisy problem, from its evaluations after the end; else nothing.

    A failure counts as the worst declared value. The errors of objectives in a weighted sum add up.
    """
    if not final:
        return {}
    from scipy.special import stdtrit  # imported here: every process loads this module, and few runs are noisy

    succeeded, failed = final["evaluations"], final["failed"]
    total, value, squares = succeeded + failed, 0.0, 0.0
    vector = np.array(space.weight_vector(weights) or np.full(len(space.selected), 1 / len(space.selected)))
    if succeeded and space.violation([final["mean"]])[0] == 0:
        rewards = space.normalise([final["mean"]])[0]
        value = float((np.maximum(rewards, 0.0) if weights is None else rewards) @ vector)
        value = min(max(value, 0.0), _LARGEST)
    if succeeded > 1:
        shares = dict(zip(space.objectives, np.divide(final["margin"], space.widths).tolist(), strict=True))
        error = np.dot(vector, [shares[objective] for objective in space.selected]) / stdtrit(succeeded - 1, 0.975)
        squares = succeeded * (succeeded - 1) * error**2
    squares += succeeded * failed / total * value**2
    margin = stdtrit(total - 1, 0.975) * np.sqrt(squares / total / (total - 1)) if total > 1 else np.nan
    return {"score": value * succeeded / total, "score_margin": float(margin)}


def _numbers(
    declared: Tournament, row: sa.Row[Any], answers: Answers, completions: Completions, final: Mapping[str, float]
) -> FloatArray:
    """Return the numbers of a run in the order of ``Results.fill``; sampled ones are reproducible by the run's seed."""
    numbers = quality(answers, budgets(declared)) | {
        "reached": float(row.hit is not None),
        "evaluations": row.evaluations if row.hit is None else row.hit,
        "tokens": row.tokens if row.hit is None else row.hit_tokens,
        "spent_evaluations": row.evaluations,
        "spent_tokens": row.tokens,
        "cost": row.cost,
        "evaluated": row.evaluated,
        "failed": row.failed,
        "duplicates": row.duplicates,
        "score_margin": np.nan,
        **final,
    }
    most = max(len(entrant.policy_names) for entrant in declared.entrants)
    positions = np.full((most, len(POLICY_NUMBERS)), np.nan)
    for i in range(len(declared.entrant(row.entrant).policy_names)):
        positions[i] = health(answers, completions, i)
    own = [numbers[name] for name in RUN_NUMBERS]
    best_by = np.minimum(numbers["best_by"], numbers["score"])  # single noisy evaluations may have been lucky
    return np.concatenate([own, best_by, positions.ravel(), [numbers["score_margin"]]])


def versions_by_name(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the query parameters that find versions by name: the names, and the slugs that an index covers."""
    versions = sorted(set(names))
    return {"names": versions, "slugs": sorted({name.partition("@")[0] for name in versions})}
