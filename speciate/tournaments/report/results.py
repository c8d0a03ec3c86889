"""What is known of every planned run, in declared order: whatever arrived first is in the same place as the last."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.tournament import Schedule
from speciate.tournaments.report.run_summary import NUMBERS, VOICE, budgets
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray

PENDING: Final = 0
ENDED: Final = 1
MISSING: Final = 2
"""What became of a planned run: it completed, or it failed or was cancelled, or neither yet."""


@dataclass(frozen=True, eq=False, slots=True)
class Results:
    """Every array has the shape (n_problems, n_seeds, n_entrants), the last two have more axes behind.

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
        diversity_all: Mean L1 distance between two candidates, failed ones at 0; NaN with fewer than two.
        diversity: The same between candidates that were scored and obey every constraint.
        hypervolume: Share of the box that the final front dominates, see ``summary.quality``.
        best_by: Best score so far at ``summary.budgets``, shape (…, n_budgets).
        voices: Numbers ``summary.VOICE`` of every policy of the entrant, shape (…, n_policies, len(VOICE)).
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
    diversity_all: FloatArray
    diversity: FloatArray
    hypervolume: FloatArray
    best_by: FloatArray
    voices: FloatArray
    reasons: dict[tuple[int, int, int], str] = field(default_factory=dict)

    @classmethod
    def empty(cls, schedule: Schedule) -> Self:
        """Return results of a tournament in which nothing has ended."""
        entrants = schedule.declared.entrants
        shape = (len(schedule.problems), len(schedule.seeds), len(entrants))
        numbers: dict[str, Any] = {name: np.zeros(shape) for name in NUMBERS}
        numbers["reached"] = np.zeros(shape, dtype=np.bool_)
        return cls(
            np.zeros(shape, dtype=np.int8),
            **numbers,
            best_by=np.zeros((*shape, len(budgets(schedule.declared)))),
            voices=np.full((*shape, max(len(entrant.asked) for entrant in entrants), len(VOICE)), np.nan),
        )

    def fill(self, at: tuple[NDArray[np.int64], ...], states: ArrayLike, numbers: FloatArray) -> None:
        """Write ended runs in place.

        Args:
            at: Their (problem, seed, entrant) indices, each of shape (n,).
            states: What became of them, shape (n,).
            numbers: ``NUMBERS``, then ``best_by``, then ``voices`` of the entrant that has most of them: what
                ``speciate.storage.declarations.tournament_summaries`` keeps of a run. Shape (n, width).
        """
        self.state[at] = states
        for i, name in enumerate(NUMBERS):
            getattr(self, name)[at] = numbers[:, i]
        rest = numbers[:, len(NUMBERS) :]
        width = self.best_by.shape[-1]
        self.best_by[at] = rest[:, :width]
        self.voices[at] = rest[:, width:].reshape(-1, *self.voices.shape[-2:])

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
