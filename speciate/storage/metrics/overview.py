"""Read totals across runs for the dashboard: run states, latest unlocks, unlock matrix, policy statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.domain.target import ClaimState
from speciate.schema.policies import PolicyFigures
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import RankedCandidate
from speciate.schema.unlocks import MatrixCell, PolicyBest, UnlockRecord
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.runs.context import ALONE, MUTATOR, NAMES
from speciate.storage.runs.listing import BEST_UNLOCKS
from speciate.storage.unlocks import SELECT_UNLOCKS

# Deleted runs do not count.
_COUNTED: Final = "(cast(:project AS uuid) IS NULL OR r.project_id = :project) AND r.deleted_at IS NULL"
_CELLS: Final = sa.text(
    f"SELECT r.problem_id, r.policy_id, {MUTATOR} AS mutator_id, count(*) AS runs,"
    " count(*) FILTER (WHERE g.state IN ('completed', 'failed', 'cancelled')) AS ended,"
    " count(c.evaluations) AS unlocked, min(c.evaluations) AS fewest FROM runs r"
    " JOIN run_progress g ON g.run_id = r.id LEFT JOIN LATERAL (SELECT min(evaluations) AS evaluations FROM claims"
    f" WHERE run_id = r.id AND unlock AND state = 'confirmed') c ON true WHERE {ALONE} AND {_COUNTED}"
    " AND (cast(:policies AS uuid[]) IS NULL OR r.policy_id = ANY(:policies))"
    " AND (cast(:problem AS uuid) IS NULL OR r.problem_id = :problem) GROUP BY 1, 2, 3"
)
_FIGURES: Final = sa.text(
    "SELECT count(*) AS runs, coalesce(sum(g.evaluated), 0) AS evaluated, coalesce(sum(g.failed), 0) AS failed,"
    " coalesce(sum(g.duplicates), 0) AS duplicates, coalesce(sum(g.tokens), 0) AS tokens, count(*) FILTER (WHERE EXISTS"
    " (SELECT FROM claims c WHERE c.run_id = r.id AND c.unlock AND c.state = 'confirmed')) AS unlocked FROM runs r"
    f" JOIN run_progress g ON g.run_id = r.id WHERE r.policy_id = :id AND {ALONE} AND {MUTATOR} IS NULL"
    " AND r.deleted_at IS NULL"
)
_ROLLOUTS: Final = sa.text(
    "SELECT count(*) AS rollouts, -sum(mean_logprob * completion_tokens) / nullif(sum(completion_tokens) FILTER (WHERE"
    " mean_logprob IS NOT NULL), 0) AS surprisal, avg(completion_tokens)::float8 AS tokens, avg(latency_s) AS"
    " latency_s, count(*) FILTER (WHERE finish_reason = 'length') AS cut FROM rollouts WHERE policy_id = :id"
    " AND run_id IN (SELECT id FROM runs WHERE deleted_at IS NULL AND (policy_id = :id OR mutator_id = :id"
    " OR id IN (SELECT run_id FROM run_policies WHERE policy_id = :id)"
    # A learned version answers in runs of its base.
    " OR policy_id = (SELECT b.id FROM policies p JOIN policies b ON b.project_id = p.project_id AND b.slug || '@' ||"
    " b.version = p.definition -> 'lineage' ->> 'base' WHERE p.id = :id)))"
)
# Runs that may hold the best candidate of their policies: unlocked ones first, then more targets, then harder ones.
_BESTS: Final = sa.text(
    "SELECT x.*, c.id, c.scalar, a.slug AS policy, a.version AS policy_version, b.slug AS mutator,"
    " b.version AS mutator_version FROM (SELECT o.*, g.best_number, g.best, g.best_targets, count(*) OVER w AS runs,"
    " row_number() OVER (w ORDER BY "
    f"{BEST_UNLOCKS} DESC, bit_count(CAST(g.best_targets AS bit(64))) DESC, g.best_targets DESC,"
    f" o.run_id DESC) AS place FROM (SELECT r.id AS run_id, r.policy_id, {MUTATOR} AS mutator_id, {NAMES} AS ensemble"
    f" FROM runs r WHERE r.problem_id = :problem AND {_COUNTED}) o JOIN run_progress g ON g.run_id = o.run_id"
    " WHERE g.best_number IS NOT NULL WINDOW w AS (PARTITION BY o.policy_id, o.mutator_id, o.ensemble)) x"
    " JOIN candidates c ON c.run_id = x.run_id AND c.number = x.best_number JOIN policies a ON a.id = x.policy_id"
    " LEFT JOIN policies b ON b.id = x.mutator_id WHERE x.place <= :runs ORDER BY x.place LIMIT :limit"
)
_BEST_RUNS: Final = 50
_BEST_ROWS: Final = 1000


class Overview(ScopedStore):
    """Reads totals across runs."""

    @with_retries
    def runs_by_state(self) -> dict[RunState, int]:
        """Return the number of runs by state, without archived ones, as the list of runs."""
        query = sa.text(
            "SELECT g.state, count(*) AS n FROM runs r JOIN run_progress g ON g.run_id = r.id"
            f" WHERE {_COUNTED} AND r.archived_at IS NULL GROUP BY g.state"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"project": self.project})
            return {RunState(row.state): row.n for row in rows}

    @with_retries
    def latest_unlocks(self, limit: int) -> tuple[UnlockRecord, ...]:
        """Return the latest confirmed targets."""
        query = sa.text(SELECT_UNLOCKS + f" WHERE c.state = :state AND {_COUNTED} ORDER BY c.at DESC LIMIT :limit")
        with reading(self._engine) as connection:
            binds = {"state": ClaimState.CONFIRMED.value, "limit": limit, "project": self.project}
            rows = connection.execute(query, binds)
            return tuple(UnlockRecord.model_validate(row._asdict()) for row in rows)

    @with_retries
    def matrix(self, policies: Sequence[UUID] | None = None, problem: UUID | None = None) -> tuple[MatrixCell, ...]:
        """Return the unlocks by problem version and policy, alone or with a mutator; runs of ensembles are left out."""
        binds = {"policies": None if policies is None else list(policies), "problem": problem, "project": self.project}
        with reading(self._engine) as connection:
            return tuple(MatrixCell.model_validate(row._asdict()) for row in connection.execute(_CELLS, binds))

    @with_retries
    def bests(self, problem: ProblemVersion) -> tuple[PolicyBest, ...]:
        """Return the best candidate of each policy, pair and ensemble on a problem version, best first.

        Of each, the 50 newest runs among those whose best candidates rank first by their targets are compared.
        """
        definition = problem.definition
        binds = {"problem": problem.id, "project": self.project, "runs": _BEST_RUNS, "limit": _BEST_ROWS}
        with reading(self._engine) as connection:
            rows = connection.execute(_BESTS, binds).all()
        rows = sorted(rows, key=lambda row: definition.ranking.merit(row.best, row.best_targets), reverse=True)
        found: dict[tuple[object, ...], PolicyBest] = {}
        for row in rows:
            best = RankedCandidate(
                id=row.id,
                number=row.best_number,
                rewards=dict(zip(definition.space.names, row.best, strict=True)),
                targets=tuple(t.name for i, t in enumerate(definition.targets) if row.best_targets >> i & 1),
                scalar=row.scalar,
            )
            record = PolicyBest.model_validate({**row._mapping, "best": best})
            found.setdefault((row.policy_id, row.mutator_id, record.policy_label), record)
        return tuple(found.values())

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
