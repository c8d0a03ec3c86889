"""What is known of every planned run, in declared order: whatever arrived first is in the same place as the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from speciate.tournaments.arrays import BoolArray, FloatArray

PENDING: Final = 0
ENDED: Final = 1
MISSING: Final = 2
"""What became of a planned run: it completed, or it failed or was cancelled, or neither yet."""


_NUMBERS: Final = (
    "evaluations", "tokens", "score", "spent_evaluations", "spent_tokens", "evaluated", "failed", "duplicates",
)  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Results:
    """Every array has the shape (n_problems, n_seeds, n_entrants).

    Attributes:
        state: ``PENDING``, ``ENDED`` or ``MISSING``.
        reached: Whether the run reached the target, confirmed.
        evaluations: Evaluations until it did, or until the run ended.
        tokens: The same in tokens.
        score: Best score of the run, higher is better.
        spent_evaluations: Evaluations of the whole run.
        spent_tokens: Tokens of the whole run.
        evaluated: Candidates that were scored.
        failed: Candidates that were not.
        duplicates: Answers that repeated a program of the run.
        reasons: Why runs are missing, by (problem, seed, entrant) index.
    """

    state: NDArray[np.int8]
    reached: BoolArray
    evaluations: FloatArray
    tokens: FloatArray
    score: FloatArray
    spent_evaluations: FloatArray
    spent_tokens: FloatArray
    evaluated: FloatArray
    failed: FloatArray
    duplicates: FloatArray
    reasons: Mapping[tuple[int, int, int], str] = field(default_factory=dict)

    @classmethod
    def empty(cls, problems: int, seeds: int, entrants: int) -> Self:
        """Return results of a tournament in which nothing has ended."""
        shape = (problems, seeds, entrants)
        numbers: dict[str, Any] = {name: np.zeros(shape) for name in _NUMBERS}
        return cls(np.zeros(shape, dtype=np.int8), np.zeros(shape, dtype=np.bool_), **numbers)

    @property
    def ended(self) -> BoolArray:
        """Which runs completed."""
        return np.asarray(self.state == ENDED)

    @property
    def complete_problems(self) -> int:
        """How many leading problems have no run that is still to come."""
        waiting = (self.state == PENDING).any(axis=(1, 2))
        return int(waiting.argmax()) if waiting.any() else len(waiting)

    def first(self, problems: int) -> Self:
        """Return the results of the first problems."""
        arrays: dict[str, Any] = {
            each.name: getattr(self, each.name)[:problems] for each in fields(self) if each.name != "reasons"
        }
        return replace(self, **arrays, reasons={at: why for at, why in self.reasons.items() if at[0] < problems})
