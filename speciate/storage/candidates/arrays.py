"""Read the candidates of a run as numpy arrays for charts, incrementally.

The server packs the rows into one value, which costs a tenth of Python objects per row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.reward import RewardSpace, extended_front
from speciate.storage.database import Store
from speciate.storage.statements import Statements

SQL = Statements(__file__)
_MOST_BYTES: Final = 1 << 28
"""Bytes per query; PostgreSQL limits a value to 1 GiB."""

_WHOLE: Final = ">i8"
_REAL: Final = ">f8"
_LAYOUT: Final = [
    ("number", _WHOLE),
    ("evaluations", _WHOLE),
    ("tokens", _WHOLE),
    ("seconds", _REAL),
    ("at", _REAL),
    ("island", _WHOLE),
    ("parent", _WHOLE),
    ("targets", _WHOLE),
    ("duplicate", _WHOLE),
    ("seed", _WHOLE),
    # Header of an array (dimensions, nulls, type, length, first index); a length precedes each element.
    ("head", "V20"),
]


@dataclass(frozen=True, eq=False)
class CandidateArrays:
    """The n candidates of a run, in the order in which they were recorded."""

    number: IntArray  # run-wide numbers, shape (n,)
    evaluations: IntArray  # evaluations spent up to and including each, shape (n,), strictly increasing
    tokens: IntArray  # tokens spent until then, shape (n,)
    seconds: FloatArray  # running seconds spent until then, shape (n,)
    at: FloatArray  # time of recording in seconds since the epoch, shape (n,)
    island: IntArray  # island of origin, shape (n,)
    parent: IntArray  # number of the first parent, 0 for none, shape (n,)
    rewards: FloatArray  # raw rewards in declared order, NaN for failed candidates, shape (n, d)
    failure: tuple[str, ...]  # n strings, ``kind: reason`` or empty
    duplicate: NDArray[np.bool_]  # true for duplicates of earlier programs, shape (n,)
    seed: NDArray[np.bool_]  # true for seed programs, shape (n,)
    targets: IntArray  # bit mask of the targets met, with refuted ones, shape (n,)

    def __len__(self) -> int:
        return len(self.number)

    @property
    def last(self) -> int:
        """Value of ``after`` for the next read."""
        return int(self.evaluations[-1]) if len(self) else 0

    @property
    def scored(self) -> NDArray[np.bool_]:
        """True for candidates with rewards, shape (n,)."""
        return np.asarray(~np.isnan(self.rewards).any(axis=1))

    def front(self, space: RewardSpace, known: IntArray | None = None, until: int = 0) -> IntArray:
        """Return the rows of the Pareto front without duplicates, ascending; feasible ones only, if there are any.

        ``known`` is the front of the first ``until`` rows.
        """
        known = np.empty(0, dtype=np.int64) if known is None else known
        rows = np.concatenate([known, until + np.flatnonzero((self.scored & ~self.duplicate)[until:])])
        points = space.normalise(self.rewards[rows])
        return np.sort(rows[extended_front(points[: len(known)], points[len(known) :])])

    def followed_by(self, more: "CandidateArrays") -> "CandidateArrays":
        """Return these candidates followed by later ones."""
        if not len(more):
            return self
        joined: dict[str, Any] = {
            name: np.concatenate([mine, theirs]) if isinstance(mine, np.ndarray) else mine + theirs
            for (name, mine), theirs in zip(vars(self).items(), vars(more).values(), strict=True)
        }
        return CandidateArrays(**joined)


class ArrayReader(Store):
    def arrays(self, run_id: UUID, dimensions: int, *, after: int = 0) -> CandidateArrays:
        """Return the candidates of a run recorded after a number of evaluations, ``last`` of the previous read.

        A run's lock serializes the commits, and the number increases, so that incremental reads miss nothing.
        """
        parts: list[CandidateArrays] = []
        most = _MOST_BYTES // _row(dimensions).itemsize
        while not parts or len(parts[-1]) == most:
            keys = {"id": run_id, "after": parts[-1].last if parts else after, "most": most, "d": dimensions}
            row = self._rows(SQL.packed, keys)[0]
            parts.append(_columns(row.packed or b"", row.failure or (), dimensions))
        return reduce(CandidateArrays.followed_by, parts)

    def refuted(self, run_id: UUID) -> tuple[tuple[int, str], ...]:
        """Return number and target of every claim of a run that a second evaluation refuted, in order.

        ``CandidateArrays.targets`` has these targets, since later reads do not repeat a candidate.
        """
        return tuple((row.number, row.target) for row in self._rows(SQL.refuted, {"id": run_id}))


def _row(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([*_LAYOUT, ("rewards", [("length", ">i4"), ("value", _REAL)], (dimensions,))])


def _columns(packed: bytes, failure: Sequence[str], dimensions: int) -> CandidateArrays:
    rows = np.frombuffer(packed, dtype=_row(dimensions))
    numbers: dict[str, Any] = {name: rows[name].astype(kind[1:]) for name, kind in _LAYOUT[:-1]}
    flags = {name: numbers[name].astype(np.bool_) for name in ("duplicate", "seed")}
    rewards = rows["rewards"]["value"].astype(np.float64)
    return CandidateArrays(**numbers | flags, rewards=rewards, failure=tuple(failure))
