"""What charts are drawn from: the candidates of a run as columns, read on from where the last reading stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from speciate.domain.reward import FloatArray
from speciate.storage.database import patient

IntArray = NDArray[np.int64]

_ROWS: Final = sa.text(
    "SELECT number, spent_evaluations, spent_tokens, spent_seconds, extract(epoch FROM created_at)::float8 AS at,"
    " island, rewards, failure, failure_reason, duplicate_of, role, parents[1] AS parent, targets FROM candidates"
    " WHERE run_id = :id AND spent_evaluations > :after ORDER BY spent_evaluations"
)


@dataclass(frozen=True, eq=False)
class Columns:
    """The candidates of a run in the order in which they were booked, n of them.

    Attributes:
        number: Run-wide numbers, shape (n,).
        evaluations: Evaluations spent up to and including each, shape (n,), strictly increasing.
        tokens: Tokens spent when it was booked, shape (n,).
        seconds: Running seconds spent then, shape (n,).
        at: When it was booked, in seconds since the epoch, shape (n,).
        island: Island it was made on, shape (n,).
        parent: Number of its first parent, 0 for none, shape (n,).
        rewards: Raw rewards in declared order, NaN where it failed, shape (n, d).
        failure: ``kind: reason`` or the empty string, n of them.
        duplicate: Whether its program was known, shape (n,).
        role: What the policy was asked to do, n of them.
        targets: Bits of the targets that its rewards meet, shape (n,).
    """

    number: IntArray
    evaluations: IntArray
    tokens: IntArray
    seconds: FloatArray
    at: FloatArray
    island: IntArray
    parent: IntArray
    rewards: FloatArray
    failure: tuple[str, ...]
    duplicate: NDArray[np.bool_]
    role: tuple[str, ...]
    targets: IntArray

    def __len__(self) -> int:
        return len(self.number)

    @property
    def last(self) -> int:
        """Evaluations at which a further reading begins."""
        return int(self.evaluations[-1]) if len(self) else 0

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Which candidates have rewards, shape (n,)."""
        return np.asarray(~np.isnan(self.rewards).any(axis=1))

    def followed_by(self, more: Columns) -> Columns:
        """Return these candidates with those that were booked after them."""
        if not len(more):
            return self
        joined: dict[str, Any] = {
            name: np.concatenate([mine, theirs]) if isinstance(mine, np.ndarray) else mine + theirs
            for (name, mine), theirs in zip(vars(self).items(), vars(more).values(), strict=True)
        }
        return Columns(**joined)


@dataclass
class Series:
    """Reads the columns.

    Attributes:
        patience_s: Seconds that a call waits for a server that restarts.
    """

    _engine: sa.Engine
    patience_s: float = 5.0

    @patient
    def columns(self, run_id: UUID, dimensions: int, *, after: int = 0) -> Columns:
        """Return the candidates of a run that were booked after a number of evaluations.

        Bookings of a run are serialised by its lock and count on, so that reading on misses nothing.

        Args:
            run_id: The run; an unknown one has no candidates.
            dimensions: d, the number of declared objectives.
            after: ``last`` of what was read before.
        """
        with self._engine.connect() as connection:
            rows = connection.execute(_ROWS, {"id": run_id, "after": after}).all()
        return _columns(rows, dimensions)


def _columns(rows: Any, dimensions: int) -> Columns:
    nothing = [float("nan")] * dimensions
    return Columns(
        number=np.array([row.number for row in rows], dtype=np.int64),
        evaluations=np.array([row.spent_evaluations for row in rows], dtype=np.int64),
        tokens=np.array([row.spent_tokens for row in rows], dtype=np.int64),
        seconds=np.array([row.spent_seconds for row in rows], dtype=np.float64),
        at=np.array([row.at for row in rows], dtype=np.float64),
        island=np.array([row.island for row in rows], dtype=np.int64),
        parent=np.array([row.parent or 0 for row in rows], dtype=np.int64),
        rewards=np.array([row.rewards or nothing for row in rows], dtype=np.float64).reshape(-1, dimensions),
        failure=tuple(f"{row.failure}: {row.failure_reason}" if row.failure else "" for row in rows),
        duplicate=np.array([row.duplicate_of is not None for row in rows], dtype=np.bool_),
        role=tuple(row.role for row in rows),
        targets=np.array([row.targets for row in rows], dtype=np.int64),
    )
