"""Read totals across runs for the dashboard: run states, latest unlocks, unlock matrix, policy statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.domain.target import ClaimState
from speciate.ports.records.policies import PolicyFigures
from speciate.ports.records.unlocks import MatrixCell, UnlockRecord
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.runs.context import ALONE, MUTATOR
from speciate.storage.unlocks import SELECT_UNLOCKS

_IN_PROJECT: Final = "(cast(:project AS uuid) IS NULL OR r.project_id = :project)"
_CELLS: Final = sa.text(
    f"SELECT r.problem_id, r.policy_id, {MUTATOR} AS mutator_id, count(*) AS runs,"
    " count(*) FILTER (WHERE g.state IN ('completed', 'failed', 'cancelled')) AS ended,"
    " count(c.evaluations) AS unlocked, min(c.evaluations) AS fewest FROM runs r"
    " JOIN run_progress g ON g.run_id = r.id LEFT JOIN LATERAL (SELECT min(evaluations) AS evaluations FROM claims"
    f" WHERE run_id = r.id AND unlock AND state = 'confirmed') c ON true WHERE {ALONE} AND {_IN_PROJECT}"
    " AND (cast(:policies AS uuid[]) IS NULL OR r.policy_id = ANY(:policies))"
    " AND (cast(:problem AS uuid) IS NULL OR r.problem_id = :problem) GROUP BY 1, 2, 3"
)
_FIGURES: Final = sa.text(
    "SELECT count(*) AS runs, coalesce(sum(g.evaluated), 0) AS evaluated, coalesce(sum(g.failed), 0) AS failed,"
    " coalesce(sum(g.duplicates), 0) AS duplicates, coalesce(sum(g.tokens), 0) AS tokens, count(*) FILTER (WHERE EXISTS"
    " (SELECT FROM claims c WHERE c.run_id = r.id AND c.unlock AND c.state = 'confirmed')) AS unlocked FROM runs r"
    f" JOIN run_progress g ON g.run_id = r.id WHERE r.policy_id = :id AND {ALONE} AND {MUTATOR} IS NULL"
)
_ROLLOUTS: Final = sa.text(
    "SELECT count(*) AS rollouts, -sum(mean_logprob * completion_tokens) / nullif(sum(completion_tokens) FILTER (WHERE"
    " mean_logprob IS NOT NULL), 0) AS surprisal, avg(completion_tokens)::float8 AS tokens, avg(latency_s) AS"
    " latency_s, count(*) FILTER (WHERE finish_reason = 'length') AS cut FROM rollouts WHERE policy_id = :id"
    " AND run_id IN (SELECT id FROM runs WHERE policy_id = :id OR mutator_id = :id)"
)


class Overview(ScopedStore):
    """Reads totals across runs."""

    @with_retries
    def runs_by_state(self) -> dict[RunState, int]:
        """Return the number of runs by state."""
        query = sa.text(
            "SELECT g.state, count(*) AS n FROM runs r JOIN run_progress g ON g.run_id = r.id"
            f" WHERE {_IN_PROJECT} GROUP BY g.state"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"project": self.project})
            return {RunState(row.state): row.n for row in rows}

    @with_retries
    def latest_unlocks(self, limit: int) -> tuple[UnlockRecord, ...]:
        """Return the latest confirmed targets."""
        query = sa.text(SELECT_UNLOCKS + f" WHERE c.state = :state AND {_IN_PROJECT} ORDER BY c.at DESC LIMIT :limit")
        with reading(self._engine) as connection:
            binds = {"state": ClaimState.CONFIRMED.value, "limit": limit, "project": self.project}
            rows = connection.execute(query, binds)
            return tuple(UnlockRecord.model_validate(row._asdict()) for row in rows)

    @with_retries
    def matrix(self, policies: Sequence[UUID] | None = None, problem: UUID | None = None) -> tuple[MatrixCell, ...]:
        """Return the unlocks by problem version and policy, alone or with a mutator; runs of ensembles are left out."""
        binds = {
            "policies": None if policies is None else list(policies),
            "problem": problem,
            "project": self.project,
        }
        with reading(self._engine) as connection:
            return tuple(MatrixCell.model_validate(row._asdict()) for row in connection.execute(_CELLS, binds))

    @with_retries
    def policy(self, policy_id: UUID) -> PolicyFigures:
        """Return statistics of a policy version, over runs without another policy."""
        with reading(self._engine) as connection:
            of_runs = connection.execute(_FIGURES, {"id": policy_id}).one()._asdict()
            of_rollouts = connection.execute(_ROLLOUTS, {"id": policy_id}).one()
        return PolicyFigures(
            **of_runs,
            rollouts=of_rollouts.rollouts,
            surprisal=of_rollouts.surprisal,
            tokens_a_rollout=of_rollouts.tokens,
            latency_s=of_rollouts.latency_s,
            cut=of_rollouts.cut,
        )
