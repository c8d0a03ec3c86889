"""Results of every planned run as arrays in declared order, so that arrival order does not matter."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.arrays import BoolArray, FloatArray
from speciate.domain.tournament import Schedule, Tournament
from speciate.tournaments.report.run_summary import POLICY_NUMBERS, RUN_NUMBERS, budgets

PENDING: Final = 0
ENDED: Final = 1
MISSING: Final = 2
"""State of a planned run: pending, completed, or failed or cancelled."""

STATES: Final = {"completed": ENDED, "failed": MISSING, "cancelled": MISSING}
"""By the state of the ended run."""


@dataclass(frozen=True, eq=False, slots=True)
class Results:
    """Arrays of shape (n_problems, n_seeds, n_entrants); the last two have further axes."""

    state: NDArray[np.int8]
    reached: BoolArray
    """True if the run reached the target and the claim was confirmed."""
    evaluations: FloatArray
    """Evaluations until the target, or until the run ended; ``tokens`` likewise."""
    tokens: FloatArray
    score: FloatArray
    """Best score of the run, higher is better; of a noisy problem the mean of its evaluations after the end."""
    spent_evaluations: FloatArray
    """Evaluations of the whole run."""
    spent_tokens: FloatArray
    cost: FloatArray
    """US dollars of the whole run, by the prices of its policies."""
    evaluated: FloatArray
    failed: FloatArray
    duplicates: FloatArray
    """Answers that repeated a program of the run."""
    diversity_all: FloatArray
    """Mean L1 distance between two candidates, failed ones at 0; NaN with fewer than two; ``diversity``: feasible."""
    diversity: FloatArray
    hypervolume: FloatArray
    """Share of the box that the final front dominates, see ``run_summary.quality``."""
    best_by: FloatArray
    """Best score so far, at most ``score``, at ``run_summary.budgets``, shape (…, n_budgets)."""
    by_policy: FloatArray
    """``POLICY_NUMBERS`` of the entrant's policies, shape (…, n_policies, len(POLICY_NUMBERS))."""
    score_margin: FloatArray
    """Half the width of the score's 95 % interval; NaN without noise."""
    reasons: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """Reasons of missing runs, by (problem, seed, entrant) index."""

    @classmethod
    def empty(cls, schedule: Schedule) -> Self:
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
            score_margin=np.full(shape, np.nan),
        )

    @staticmethod
    def columns(declared: Tournament) -> tuple[str, ...]:
        policies = max(len(entrant.policy_names) for entrant in declared.entrants)
        best_by = (f"best_by_{budget:.0f}" for budget in budgets(declared))
        by_policy = (f"policy_{i}_{name}" for i in range(policies) for name in POLICY_NUMBERS)
        return (*RUN_NUMBERS, *best_by, *by_policy, "score_margin")

    def fill(self, at: tuple[NDArray[np.int64] | slice, ...], states: ArrayLike, numbers: FloatArray) -> None:
        """Write ended runs in place, ``at`` their (problem, seed, entrant) indices, or slices that hold one run.

        A row of ``numbers`` holds ``RUN_NUMBERS``, then ``best_by``, ``by_policy`` flattened and ``score_margin``, as
        stored by ``speciate.storage.declarations.summaries``.
        """
        self.state[at] = states
        for i, name in enumerate(RUN_NUMBERS):
            getattr(self, name)[at] = numbers[:, i]
        rest, self.score_margin[at] = numbers[:, len(RUN_NUMBERS) : -1], numbers[:, -1]
        width = self.best_by.shape[-1]
        self.best_by[at] = rest[:, :width]
        self.by_policy[at] = rest[:, width:].reshape(-1, *self.by_policy.shape[-2:])

    @property
    def ended(self) -> BoolArray:
        return np.asarray(self.state == ENDED)

    @property
    def finished(self) -> bool:
        return not (self.state == PENDING).any()

    def lost(self, entrants: list[int]) -> int:
        """Return the number of (problem, seed) pairs that some entrants lack because a run failed or was cancelled."""
        state = self.state[..., entrants]
        return int(((state == MISSING).any(axis=-1) & (state != PENDING).all(axis=-1)).sum())

    @property
    def complete_problems(self) -> int:
        """Number of leading problems without a pending run."""
        waiting = (self.state == PENDING).any(axis=(1, 2))
        return int(waiting.argmax()) if waiting.any() else len(waiting)

    def first(self, problems: int) -> Self:
        names = [each.name for each in fields(self) if each.name != "reasons"]
        arrays: dict[str, Any] = {name: getattr(self, name)[:problems] for name in names}
        return replace(self, **arrays, reasons={at: why for at, why in self.reasons.items() if at[0] < problems})


def plan_axes(schedule: Schedule) -> tuple[dict[Any, int], ...]:
    """Return the positions of problems, seeds and entrants by name, the axes of the arrays."""
    entrants = (entrant.name for entrant in schedule.declared.entrants)
    return tuple({name: i for i, name in enumerate(names)} for names in (schedule.problems, schedule.seeds, entrants))


def missing_reason(state: str, reason: str | None) -> str:
    return f"{state}: {last_line(reason) or 'no reason is kept'}"


def last_line(reason: str | None) -> str:
    """Return the end of a reason, which may quote the output of an engine: of a traceback, the error."""
    return ((reason or "").strip().splitlines() or [""])[-1]
