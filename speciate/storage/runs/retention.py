"""Delete the texts of ended runs, and keep their record.

The record is the run, its counters and events, and every candidate with rewards and parents. The best candidate, and
candidates that claimed a target or hold a cell of the archive, also keep program, completion and prompt. Every step is
a transaction, and an interrupted pass can be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.ids import floor7
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.statements import Statements

SQL = Statements(__file__)

UNSUCCESSFUL: Final = (RunState.CANCELLED, RunState.FAILED)
"""Final states without a result."""

_PROMPTS: Final = 500
# Bound on the age of a rollout's id at its insertion, including clock differences between machines.
_SKEW_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class PrunableRun:
    """A run whose texts can be deleted."""

    run_id: UUID
    problem: str
    state: RunState
    finished_at: datetime
    candidates: int
    bytes: int
    """Stored size of its texts, without prompts, which runs share."""


@dataclass
class RetentionStore(Store):
    retry_for_s: float = field(default=60.0, kw_only=True)

    @with_retries
    def prunable(self, before: datetime, states: Sequence[RunState] = UNSUCCESSFUL) -> tuple[PrunableRun, ...]:
        """Return the unpruned runs that ended before a time in one of the states, earliest first."""
        binds = {"before": before, "states": [state.value for state in states]}
        with reading(self._engine) as connection:
            return tuple(
                PrunableRun(
                    run_id=row.id,
                    problem=row.problem,
                    state=RunState(row.state),
                    finished_at=row.finished_at,
                    candidates=row.numbers,
                    bytes=int(connection.execute(SQL.weigh, {"id": row.id}).scalar_one()),
                )
                for row in connection.execute(SQL.due, binds).all()
            )

    def prune(self, runs: Sequence[PrunableRun], now: datetime) -> None:
        """Prune runs and then unused prompts."""
        for run in runs:
            for statement in (SQL.prune_candidates, SQL.prune_results, SQL.prune_rollouts, SQL.prune_inputs):
                self._execute(statement, {"id": run.run_id})
        ids = {"ids": [run.run_id for run in runs]}
        self._drop_prompts(self._rows(SQL.unused_prompts, ids), floor7(now.timestamp() - _SKEW_S))
        self._execute(SQL.mark_pruned, ids)  # last: an interrupted pass is repeated for all of them

    def _drop_prompts(self, rows: Sequence[sa.Row[Any]], since: UUID) -> None:
        """Delete prompts by their digests, few at a time: nobody can add rollouts meanwhile."""
        digests = sorted(digest for (digest,) in rows)
        for start in range(0, len(digests), _PROMPTS):
            self._drop(digests[start : start + _PROMPTS], since)

    @with_retries
    def _drop(self, digests: Sequence[str], since: UUID) -> None:
        with self._engine.begin() as connection:
            connection.execute(SQL.limit_lock)
            connection.execute(SQL.lock_prompts)
            connection.execute(SQL.delete_prompts, {"digests": list(digests), "since": since})
