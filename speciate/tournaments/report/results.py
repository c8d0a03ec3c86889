"""Results of every planned run as arrays in declared order, so that arrival order does not matter."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.tournament import Schedule
from speciate.tournaments.report.run_summary import POLICY_NUMBERS, RUN_NUMBERS, budgets
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray

PENDING: Final = 0
ENDED: Final = 1
MISSING: Final = 2
"""State of a planned run: pending, completed, or failed or cancelled."""


@dataclass(frozen=True, eq=False, slots=True)
class Results:
    """Arrays of shape (n_problems, n_seeds, n_entrants); the last two have further axes.

    Attributes:
        state: ``PENDING``, ``ENDED`` or ``MISSING``.
        reached: True if the run reached the target and the claim was confirmed.
        evaluations: Evaluations until the target, or until the run ended.
        tokens: Tokens until the target, or until the run ended.
        score: Best score of the run, higher is better.
        spent_evaluations: Evaluations of the whole run.
        spent_tokens: Tokens of the whole run.
        cost: US dollars of the whole run, by the prices of its policies.
        evaluated: Candidates that were scored.
        failed: Candidates that were not scored.
        duplicates: Answers that repeated a program of the run.
        diversity_all: Mean L1 distance between two candidates, failed ones at 0; NaN with fewer than two.
        diversity: The same between feasible candidates.
        hypervolume: Share of the box that the final front dominates, see ``run_summary.quality``.
        best_by: Best score so far at ``run_summary.budgets``, shape (…, n_budgets).
        by_policy: ``POLICY_NUMBERS`` of the entrant's policies, shape (…, n_policies, len(POLICY_NUMBERS)).
        reasons: Reasons of missing runs, by (problem, seed, entrant) index.
    """

    state: NDArray[np.int8]
    reached: BoolArray
    evaluations: FloatArray
    tokens: FloatArray
    score: FloatArray
    spent_evaluations: FloatArray
    spent_tokens: FloatArray
    cost: FloatArray
    evaluated: FloatArray
    failed: FloatArray
    duplicates: FloatArray
    diversity_all: FloatArray
    diversity: FloatArray
    hypervolume: FloatArray
    best_by: FloatArray
    by_policy: FloatArray
    reasons: dict[tuple[int, int, int], str] = field(default_factory=dict)

    @classmethod
    def empty(cls, schedule: Schedule) -> Self:
        """Return the results of a tournament in which no run has ended."""
        entrants = schedule.declared.entrants
        policies = max(len(entrant.policy_names) for entrant in entrants)
        shape = (len(schedule.problems), len(schedule.seeds), len(entrants))
        numbers: dict[str, Any] = {name: np.zeros(shape) for name in RUN_NUMBERS}
        numbers["reached"] = np.zeros(shape, dtype=np.bool_)
        return cls(
            np.zeros(shape, dtype=np.int8),
            **numbers,
            best_by=np.zeros((*shape, len(budgets(schedule.declared)))),
            by_policy=np.full((*shape, policies, len(POLICY_NUMBERS)), np.nan),
        )

    def fill(self, at: tuple[NDArray[np.int64], ...], states: ArrayLike, numbers: FloatArray) -> None:
        """Write ended runs in place.

        Args:
            at: Their (problem, seed, entrant) indices, each of shape (n,).
            states: Their states, shape (n,).
            numbers: Shape (n, width): ``RUN_NUMBERS``, then ``best_by``, then ``by_policy`` flattened, as stored by
                ``speciate.storage.declarations.summaries``.
        """
        self.state[at] = states
        for i, name in enumerate(RUN_NUMBERS):
            getattr(self, name)[at] = numbers[:, i]
        rest = numbers[:, len(RUN_NUMBERS) :]
        width = self.best_by.shape[-1]
        self.best_by[at] = rest[:, :width]
        self.by_policy[at] = rest[:, width:].reshape(-1, *self.by_policy.shape[-2:])

    @property
    def ended(self) -> BoolArray:
        """True for completed runs."""
        return np.asarray(self.state == ENDED)

    @property
    def complete_problems(self) -> int:
        """Number of leading problems without a pending run."""
        waiting = (self.state == PENDING).any(axis=(1, 2))
        return int(waiting.argmax()) if waiting.any() else len(waiting)

    def first(self, problems: int) -> Self:
        """Return the results of the first problems."""
        arrays: dict[str, Any] = {
            each.name: getattr(self, each.name)[:problems] for each in fields(self) if each.name != "reasons"
        }
        return replace(self, **arrays, reasons={at: why for at, why in self.reasons.items() if at[0] < problems})
