"""The unlock record: what was reached, by which policy under which strategy, and at what price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.target import ClaimState
from speciate.ports.records.base import Page
from speciate.ports.records.unlocks import UnlockRecord
from speciate.storage import cursors
from speciate.storage.database import patient, reading
from speciate.storage.ensemble_rows import ALONE, MUTATOR, NAMES

SELECT_UNLOCKS = f"""
SELECT c.run_id, r.problem_id, p.slug AS problem, p.version AS problem_version, r.policy_id, a.slug AS policy,
  a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  {NAMES} AS ensemble, r.strategy, (r.spec ->> 'seed')::bigint AS seed, c.target, c.unlock,
  p.definition ->> 'kind' = 'in_process' AS forgeable,
  c.state, c.number, d.id AS candidate_id, c.evaluations, c.tokens, c.seconds, c.at
FROM claims c JOIN runs r ON r.id = c.run_id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = r.mutator_id
  JOIN candidates d ON d.run_id = c.run_id AND d.number = c.number
"""

# Who is asked: an ensemble is all its policies, whichever of them is named first.
_WHO = f"coalesce(nullif({NAMES}, '{{}}'), ARRAY[r.policy_id::text, {MUTATOR}::text])"
# Nobody asked for the same in the same way reached the target of this problem version before.
_FIRST = f"""NOT EXISTS (SELECT FROM claims c2 JOIN runs r2 ON r2.id = c2.run_id
  WHERE r2.problem_id = r.problem_id AND r2.strategy = r.strategy AND c2.target = c.target AND c2.state = 'confirmed'
  AND (c2.at, c2.run_id) < (c.at, c.run_id) AND {_WHO.replace("r.", "r2.")} = {_WHO})"""


@dataclass
class UnlockRecords:
    """Reads the record; the ledger writes it.

    Attributes:
        patience_s: Seconds that a call waits for a server that restarts.
        project: The project that is seen; None sees all.
    """

    _engine: sa.Engine
    patience_s: float = 5.0
    project: UUID | None = None

    @patient
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

        With ``first_only``, of each problem version, target, policy version (with its mutator) and strategy the first
        confirmed candidate.
        """
        clauses, binds = [], dict[str, Any](limit=limit + 1)
        wanted = (
            ("c.run_id", run_id),
            ("r.problem_id", problem_id),
            ("r.policy_id", policy_id),
            ("r.project_id", self.project),
        )
        for column, value in wanted:
            if value is not None:
                name = column.partition(".")[2]
                clauses.append(f"{column} = :{name}")
                binds[name] = value
        if policy_id is not None:
            # What several policies reached together is the record of none of them.
            clauses.append(ALONE)
        if state is not None:
            clauses.append("c.state = :state")
            binds["state"] = state.value
        if strategy is not None:
            clauses.append("r.strategy = :strategy")
            binds["strategy"] = strategy
        if first_only:
            clauses.append(f"c.state = 'confirmed' AND {_FIRST}")
        if unlocks_only:
            clauses.append("c.unlock")
        if cursor is not None:
            run, evaluations, target = cursors.decode(cursor, [UUID, int, str])
            clauses.append("(c.run_id < :a OR (c.run_id = :a AND (c.evaluations, c.target) > (:b, :c)))")
            binds |= {"a": run, "b": evaluations, "c": target}
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        query = sa.text(SELECT_UNLOCKS + where + " ORDER BY c.run_id DESC, c.evaluations, c.target LIMIT :limit")
        with reading(self._engine) as connection:
            rows = connection.execute(query, binds).all()
        return cursors.page(
            rows,
            limit,
            lambda row: UnlockRecord.model_validate(row._asdict()),
            lambda row: [str(row.run_id), row.evaluations, row.target],
        )
