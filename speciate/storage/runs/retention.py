"""Retention: the texts of ended runs go, the record stays.

Kept are the run, its counters and events, every candidate with rewards and descent, and of those that claimed a target
or hold a place of the archive the program, the completion and the prompt as well. Every step is a small transaction,
so that nobody waits; a pass that is cut off is done again from its beginning without harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.storage.database import reading, with_retries
from speciate.storage.rows import floor7

UNSUCCESSFUL: Final = (RunState.CANCELLED, RunState.FAILED)
"""States in which a run ends without a result that anyone waits for."""

_WINDOW: Final = 1000
_PROMPTS: Final = 500
# Whoever inserts a rollout drew its id a moment before; the clocks of two machines may differ by less than this.
_SKEW_S: Final = 600.0
_KEPT = "SELECT number FROM claims WHERE run_id = :id UNION SELECT number FROM elites WHERE run_id = :id"
_ASKED = f"SELECT rollout_id FROM candidates WHERE run_id = :id AND rollout_id IS NOT NULL AND number IN ({_KEPT})"
_DUE = sa.text(
    "SELECT r.id, p.slug AS problem, g.state, g.finished_at, g.numbers, g.batches FROM run_progress g"
    " JOIN runs r ON r.id = g.run_id JOIN problems p ON p.id = r.problem_id"
    " WHERE g.pruned_at IS NULL AND g.state = ANY(:states) AND g.finished_at < :before ORDER BY g.finished_at"
)
_WEIGH = sa.text(
    "SELECT (SELECT coalesce(sum(pg_column_size(program) + pg_column_size(artifacts)"
    " + coalesce(pg_column_size(failure_detail), 0)), 0) FROM candidates"
    f" WHERE run_id = :id AND number NOT IN ({_KEPT}))"
    " + (SELECT coalesce(sum(pg_column_size(completion)), 0) FROM rollouts"
    f" WHERE run_id = :id AND id NOT IN ({_ASKED}))"
)
_CANDIDATES = sa.text(
    "UPDATE candidates SET program = '', failure_detail = NULL, artifacts = '{\"pruned\": \"the texts are gone\"}'"
    f" WHERE run_id = :id AND number > :after AND number <= :upto AND program <> '' AND number NOT IN ({_KEPT})"
)
# Another run that made the same program would be given what is gone, instead of an evaluation.
_RESULTS = sa.text(
    "DELETE FROM results x USING candidates c WHERE x.run_id = :id AND x.number > :after AND x.number <= :upto"
    " AND c.run_id = x.run_id AND c.number = x.number AND c.program = ''"
)
_ROLLOUTS = sa.text(
    "UPDATE rollouts SET completion = '' WHERE run_id = :id AND batch > :after AND batch <= :upto"
    f" AND completion <> '' AND id NOT IN ({_ASKED})"
)
_PRUNED = sa.text("UPDATE run_progress SET pruned_at = clock_timestamp() WHERE run_id = :id")
_DOOMED = sa.text(
    "SELECT prompt_digest FROM rollouts WHERE run_id = ANY(:ids)"
    " EXCEPT SELECT prompt_digest FROM rollouts o JOIN run_progress g ON g.run_id = o.run_id"
    " WHERE g.pruned_at IS NULL OR o.completion <> ''"
)
# Against those who at this moment insert a rollout with such a prompt, which they found to be there.
_STAND_STILL = sa.text("LOCK TABLE prompts IN SHARE ROW EXCLUSIVE MODE")
_PATIENCE = sa.text("SET LOCAL lock_timeout = '2s'")
_DROP = sa.text(
    "DELETE FROM prompts WHERE digest = ANY(:digests)"
    " AND digest NOT IN (SELECT prompt_digest FROM rollouts WHERE id > :since)"
)


@dataclass(frozen=True, slots=True)
class PrunableRun:
    """A run whose texts may go.

    Attributes:
        bytes: What its texts take, as they are stored; prompts, which runs share, are not in it.
    """

    run_id: UUID
    problem: str
    state: RunState
    finished_at: datetime
    candidates: int
    batches: int
    bytes: int


@dataclass
class RetentionStore:
    """Prunes runs.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
    """

    _engine: sa.Engine
    retry_for_s: float = 60.0

    @with_retries
    def prunable(self, before: datetime, states: Sequence[RunState] = UNSUCCESSFUL) -> tuple[PrunableRun, ...]:
        """Return the runs that ended in one of some states before a moment, the earliest first."""
        asked = {"before": before, "states": [state.value for state in states]}
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
                for row in connection.execute(_DUE, asked).all()
            )

    def prune(self, runs: Sequence[PrunableRun], now: datetime) -> Iterator[int]:
        """Prune runs, yielding after each step how many texts went; at last the prompts that nobody has left."""
        for run in runs:
            for start in range(0, run.candidates, _WINDOW):
                window = {"id": run.run_id, "after": start, "upto": start + _WINDOW}
                gone = self._step(_CANDIDATES, window)
                self._step(_RESULTS, window)
                yield gone
            for start in range(-1, run.batches, _WINDOW // 10):
                yield self._step(_ROLLOUTS, {"id": run.run_id, "after": start, "upto": start + _WINDOW // 10})
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
            return sorted(connection.execute(_DOOMED, {"ids": list(run_ids)}).scalars())

    @with_retries
    def _drop(self, digests: Sequence[str], since: UUID) -> int:
        with self._engine.begin() as connection:
            connection.execute(_PATIENCE)
            connection.execute(_STAND_STILL)
            return connection.execute(_DROP, {"digests": list(digests), "since": since}).rowcount
