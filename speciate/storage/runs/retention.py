"""Delete the texts of ended runs, and keep their record.

The record is the run, its counters and events, and every candidate with rewards and parents. The best candidate, and
candidates that claimed a target or hold a cell of the archive, also keep program, completion and prompt. Every step is
a small transaction, and an interrupted pass can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.ids import floor7
from speciate.storage.database import Store, reading, with_retries

UNSUCCESSFUL: Final = (RunState.CANCELLED, RunState.FAILED)
"""Final states without a result."""

_WINDOW: Final = 1000
_PROMPTS: Final = 500
# Bound on the age of a rollout's id at its insertion, including clock differences between machines.
_SKEW_S: Final = 600.0
_KEPT = (
    "SELECT number FROM claims WHERE run_id = :id UNION SELECT number FROM elites WHERE run_id = :id"
    " UNION SELECT best_number FROM run_progress WHERE run_id = :id AND best_number IS NOT NULL"
)
_KEPT_ROLLOUTS = (
    f"SELECT rollout_id FROM candidates WHERE run_id = :id AND rollout_id IS NOT NULL AND number IN ({_KEPT})"
)
_DUE = sa.text(
    "SELECT r.id, p.slug AS problem, g.state, g.finished_at, g.numbers, g.batches FROM run_progress g"
    " JOIN runs r ON r.id = g.run_id JOIN problems p ON p.id = r.problem_id"
    " WHERE g.pruned_at IS NULL AND g.state = ANY(:states) AND g.finished_at < :before ORDER BY g.finished_at"
)
_WEIGH = sa.text(
    "SELECT (SELECT coalesce(sum(pg_column_size(program) + pg_column_size(artifacts)"
    " + coalesce(pg_column_size(failure_detail), 0)), 0) FROM candidates"
    f" WHERE run_id = :id AND number NOT IN ({_KEPT}))"
    " + (SELECT coalesce(sum(pg_column_size(program)), 0) FROM run_seeds WHERE run_id = :id)"
    " + (SELECT coalesce(sum(pg_column_size(completion) + coalesce(pg_column_size(logprobs), 0)"
    " + coalesce(pg_column_size(token_ids), 0)), 0) FROM rollouts"
    f" WHERE run_id = :id AND id NOT IN ({_KEPT_ROLLOUTS}))"
)
_CANDIDATES = sa.text(
    "UPDATE candidates SET program = '', failure_detail = NULL, artifacts = '{\"pruned\": \"the texts are gone\"}'"
    f" WHERE run_id = :id AND number > :after AND number <= :upto AND program <> '' AND number NOT IN ({_KEPT})"
)
# Otherwise another run with the same program would reuse a deleted result instead of evaluating it.
_RESULTS = sa.text(
    "DELETE FROM results x USING candidates c WHERE x.run_id = :id AND x.number > :after AND x.number <= :upto"
    " AND c.run_id = x.run_id AND c.number = x.number AND c.program = ''"
)
_ROLLOUTS = sa.text(
    "UPDATE rollouts SET completion = '', logprobs = NULL, token_ids = NULL"
    " WHERE run_id = :id AND batch > :after AND batch <= :upto"
    f" AND completion <> '' AND id NOT IN ({_KEPT_ROLLOUTS})"
)
_SEEDS = sa.text("UPDATE run_seeds SET program = '' WHERE run_id = :id")
_PRUNED = sa.text("UPDATE run_progress SET pruned_at = clock_timestamp() WHERE run_id = :id")
_UNUSED_PROMPTS = sa.text(
    "SELECT prompt_digest FROM rollouts WHERE run_id = ANY(:ids)"
    " EXCEPT SELECT prompt_digest FROM rollouts o JOIN run_progress g ON g.run_id = o.run_id"
    " WHERE g.pruned_at IS NULL OR o.completion <> ''"
)
# Blocks concurrent inserts of rollouts that refer to such a prompt.
_LOCK_PROMPTS = sa.text("LOCK TABLE prompts IN SHARE ROW EXCLUSIVE MODE")
_LOCK_TIMEOUT = sa.text("SET LOCAL lock_timeout = '2s'")
_DROP = sa.text(
    "DELETE FROM prompts WHERE digest = ANY(:digests)"
    " AND digest NOT IN (SELECT prompt_digest FROM rollouts WHERE id > :since)"
)


@dataclass(frozen=True, slots=True)
class PrunableRun:
    """A run whose texts can be deleted.

    Attributes:
        bytes: Stored size of its texts, without prompts, which runs share.
    """

    run_id: UUID
    problem: str
    state: RunState
    finished_at: datetime
    candidates: int
    batches: int
    bytes: int


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
                    bytes=int(connection.execute(_WEIGH, {"id": row.id}).scalar_one()),
                )
                for row in connection.execute(_DUE, binds).all()
            )

    def prune(self, runs: Sequence[PrunableRun], now: datetime) -> Iterator[int]:
        """Prune runs and then unused prompts, yielding the number of deleted texts after each step."""
        for run in runs:
            for start in range(0, run.candidates, _WINDOW):
                window = {"id": run.run_id, "after": start, "upto": start + _WINDOW}
                deleted = self._step(_CANDIDATES, window)
                self._step(_RESULTS, window)
                yield deleted
            for start in range(-1, run.batches, _WINDOW // 10):
                yield self._step(_ROLLOUTS, {"id": run.run_id, "after": start, "upto": start + _WINDOW // 10})
            self._step(_SEEDS, {"id": run.run_id})
            self._step(_PRUNED, {"id": run.run_id})
        digests = self._unused([run.run_id for run in runs])
        since = floor7(now.timestamp() - _SKEW_S)
        for start in range(0, len(digests), _PROMPTS):
            yield self._drop(digests[start : start + _PROMPTS], since)

    @with_retries
    def _step(self, statement: sa.TextClause, binds: dict[str, object]) -> int:
        with self._engine.begin() as connection:
            return connection.execute(statement, binds).rowcount

    @with_retries
    def _unused(self, run_ids: Sequence[UUID]) -> list[str]:
        with reading(self._engine) as connection:
            return sorted(connection.execute(_UNUSED_PROMPTS, {"ids": list(run_ids)}).scalars())

    @with_retries
    def _drop(self, digests: Sequence[str], since: UUID) -> int:
        with self._engine.begin() as connection:
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(_LOCK_PROMPTS)
            return connection.execute(_DROP, {"digests": list(digests), "since": since}).rowcount
