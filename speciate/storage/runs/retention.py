"""Delete the texts of ended runs, and keep their record.

The record is the run, its counters and events, and every candidate with rewards and parents. The best candidate, and
candidates that claimed a target or hold a cell of the archive, also keep program, completion and prompt. Every step is
a small transaction, and an interrupted pass can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

_WINDOW: Final = 1000
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
    batches: int
    bytes: int
    """Stored size of its texts, without prompts, which runs share."""


@dataclass
class RetentionStore(Store):
    """Finds and prunes runs."""

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
                    batches=row.batches,
                    bytes=int(connection.execute(SQL.weigh, {"id": row.id}).scalar_one()),
                )
                for row in connection.execute(SQL.due, binds).all()
            )

    def prune(self, runs: Sequence[PrunableRun], now: datetime) -> Iterator[int]:
        """Prune runs and then unused prompts, yielding the number of deleted texts after each step."""
        for run in runs:
            for start in range(0, run.candidates, _WINDOW):
                window = {"id": run.run_id, "after": start, "upto": start + _WINDOW}
                deleted = self._execute(SQL.prune_candidates, window)
                self._execute(SQL.prune_results, window)
                yield deleted
            for start in range(-1, run.batches, _WINDOW // 10):
                yield self._execute(
                    SQL.prune_rollouts, {"id": run.run_id, "after": start, "upto": start + _WINDOW // 10}
                )
            self._execute(SQL.prune_seeds, {"id": run.run_id})
            self._execute(SQL.mark_pruned, {"id": run.run_id})
        unused = self._rows(SQL.unused_prompts, {"ids": [run.run_id for run in runs]})
        yield from self._drop_prompts(unused, floor7(now.timestamp() - _SKEW_S))

    def _drop_prompts(self, rows: Sequence[sa.Row[Any]], since: UUID) -> Iterator[int]:
        """Delete prompts by their digests, yielding the number of deleted ones after each step."""
        digests = sorted(digest for (digest,) in rows)
        for start in range(0, len(digests), _PROMPTS):
            yield self._drop(digests[start : start + _PROMPTS], since)

    @with_retries
    def _drop(self, digests: Sequence[str], since: UUID) -> int:
        with self._engine.begin() as connection:
            connection.execute(SQL.limit_lock)
            connection.execute(SQL.lock_prompts)
            return connection.execute(SQL.delete_prompts, {"digests": list(digests), "since": since}).rowcount
