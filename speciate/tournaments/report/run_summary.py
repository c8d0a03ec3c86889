"""Summarize an ended run in numbers, computed once and stored with the plan."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from speciate.domain.arrays import BoolArray, FloatArray, IntArray
from speciate.domain.tournament import Tournament
from speciate.tournaments.statistics.estimators import diversity, spread
from speciate.tournaments.statistics.hypervolume import hypervolume_curve

RUN_NUMBERS: Final = (
    "reached", "evaluations", "tokens", "score", "spent_evaluations", "spent_tokens", "cost", "evaluated", "failed",
    "duplicates", "diversity_all", "diversity", "hypervolume",
)  # fmt: skip
"""Numbers of a whole run, documented in ``report.results.Results``."""

POLICY_NUMBERS: Final = (
    "rollouts", "answers", "entropy", "unreadable", "failed", "duplicates", "reward", "within", "across",
)  # fmt: skip
"""Numbers of one policy within a run, documented in ``report.measures.PolicyHealth``; NaN if undefined."""

BUDGETS: Final = 8
"""Budgets, evenly spaced in logarithm, at which the best score so far is recorded."""

_BELOW: Final = 0.1  # the hypervolume's reference lies below the worst end, so that a worst component is not 0


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """The n candidates of a run, ordered by number."""

    rewards: FloatArray
    """Normalised rewards, zeros for candidates that are not valid, shape (n, k)."""
    scores: FloatArray
    """Declared weighted sum of the normalised objectives, or without weights their mean; 0 for candidates that are not
    valid or score below the worst declared end. Shape (n,)."""
    valid: BoolArray
    """True for feasible candidates with a score."""
    spent: IntArray
    """Evaluations spent, including this candidate."""
    policy: IntArray
    """Position of its policy in ``Entrant.policy_names``; −1 for the problem's seed program."""
    rollout: IntArray
    """Index of its completion; −1 for none."""
    duplicate: BoolArray
    """True if the candidate repeats a program of the run."""


@dataclass(frozen=True, eq=False, slots=True)
class Completions:
    policy: IntArray
    """Position of the policy in ``Entrant.policy_names``."""
    tokens: FloatArray
    surprise: FloatArray
    """Mean −log p of these tokens, NaN if unknown."""
    unreadable: BoolArray
    """True if the completion has no readable answer."""


def budgets(declared: Tournament) -> FloatArray:
    """Return the budgets, in evaluations, at which best scores are recorded; fewer for a small budget."""
    at: FloatArray = np.unique(np.geomspace(1, declared.budget.evaluations or 1, BUDGETS).round())
    return at


def quality(answers: Answers, at: FloatArray) -> dict[str, float | FloatArray]:
    """Return score, diversity, hypervolume and best scores so far (``best_by``, shape of ``at``) of a run.

    ``at`` are budgets in evaluations. The hypervolume is a share of the box from a tenth of every range below its worst
    end to its best end (Ishibuchi et al. 2018, "How to specify a reference point in hypervolume calculation"). With the
    worst end as reference, a specialist with one component at its worst would count as 0. Values beyond the best end
    count as the best end.
    """
    every, valid = diversity(answers.rewards, answers.valid)
    points = answers.rewards[answers.valid]
    order = np.argsort(answers.spent, kind="stable")
    best = np.maximum.accumulate(answers.scores[order]) if len(order) else np.zeros(0)
    reached = np.searchsorted(answers.spent[order], at, side="right")
    return {
        "score": float(best[-1]) if len(best) else 0.0,
        "best_by": np.where(reached > 0, best[np.maximum(reached - 1, 0)], 0.0) if len(best) else np.zeros(len(at)),
        "diversity_all": every,
        "diversity": valid,
        "hypervolume": float(hypervolume_curve((points + _BELOW) / (1.0 + _BELOW), [len(points)])[0]),
    }


def health(answers: Answers, completions: Completions, policy: int) -> FloatArray:
    sampled = completions.policy == policy
    mine = answers.policy == policy
    tokens = np.where(np.isfinite(completions.surprise), completions.tokens, 0.0)[sampled]
    surprise = np.nan_to_num(completions.surprise[sampled])
    scored = mine & answers.valid
    within, across = spread(answers.rewards[scored], answers.rollout[scored])
    return np.array(
        [
            sampled.sum(),
            mine.sum(),
            (tokens @ surprise) / tokens.sum() if tokens.sum() > 0 else np.nan,
            _share(completions.unreadable[sampled]),
            _share(~answers.valid[mine]),
            _share(answers.duplicate[mine]),
            _share(answers.scores[mine]),
            within,
            across,
        ]
    )


def _share(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if len(values) else float("nan")
