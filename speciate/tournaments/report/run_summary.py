"""What one ended run says, in numbers: found once, when it has ended, and kept beside the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.reward import pareto_front
from speciate.domain.tournament import Tournament
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray
from speciate.tournaments.statistics.estimators import Diversity, diversity, spread
from speciate.tournaments.statistics.hypervolume import hypervolume

IntArray = NDArray[np.int64]

NUMBERS: Final = (
    "reached", "evaluations", "tokens", "score", "spent_evaluations", "spent_tokens", "evaluated", "failed",
    "duplicates", "diversity_all", "diversity", "hypervolume",
)  # fmt: skip
"""Numbers of a whole run; ``speciate.tournaments.report.results.Results`` says what they are."""

VOICE: Final = (
    "rollouts", "answers", "entropy", "unreadable", "failed", "duplicates", "reward", "within", "across",
)  # fmt: skip
"""Numbers of one policy within a run, NaN where there are none.

``entropy``: nats per token, the mean of −log p over the sampled tokens; ``unreadable``: share of completions out of
which no answer could be read; ``failed`` (could not be scored, or violates a constraint) and ``duplicates``: shares of
the answers; ``reward``: mean score of the answers, failed ones 0; ``within`` and ``across``: mean L1 distance between
those that did not fail, of one completion or of two.
"""

BUDGETS: Final = 8
"""Budgets, evenly spaced in logarithm, at which the best score so far is kept."""

_BELOW: Final = 0.1  # reference of the hypervolume: where a component is worst, the others still count
_EXACT_POINTS, _DRAWS = 40, 20_000


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """The n candidates of a run, in order of number.

    Attributes:
        rewards: Normalised rewards, zeros where it is not valid, shape (n, k).
        scores: Declared weighted sum, or without one the first objective; 0 where it is not valid, or
            below the worst declared end, which is 0. Shape (n,).
        valid: Which were scored and obey every constraint.
        spent: Evaluations spent up to and including it.
        voice: Position of its policy among ``Entrant.asked``; −1 for the problem's own seed program.
        rollout: Which completion it was read out of; −1 for none.
        duplicate: Which repeat a program of the run.
    """

    rewards: FloatArray
    scores: FloatArray
    valid: BoolArray
    spent: IntArray
    voice: IntArray
    rollout: IntArray
    duplicate: BoolArray


@dataclass(frozen=True, eq=False, slots=True)
class Completions:
    """The completions of a run.

    Attributes:
        voice: Position of the policy among ``Entrant.asked``.
        tokens: Tokens of the completion.
        surprise: Mean −log p of these tokens, NaN where it is not known.
        unreadable: Whether no answer could be read out of it.
    """

    voice: IntArray
    tokens: FloatArray
    surprise: FloatArray
    unreadable: BoolArray


def budgets(declared: Tournament) -> FloatArray:
    """Return the budgets, in evaluations, at which best scores are kept; fewer where the budget is small."""
    found: FloatArray = np.unique(np.geomspace(1, declared.budget.evaluations or 1, BUDGETS).round())
    return found


def quality(answers: Answers, at: FloatArray, rng: np.random.Generator) -> dict[str, float | FloatArray]:
    """Return score, diversity, hypervolume and best scores so far (``best_by``, shape of ``at``) of a run.

    The hypervolume is a share of the box that reaches from a tenth of every range below its worst end to its best end
    (Ishibuchi et al. 2018, "How to specify a reference point in hypervolume calculation"): with the worst end itself as
    the reference a specialist that has nothing of one component would count for nothing. What lies beyond the best end
    counts as the best end.

    Args:
        answers: The candidates.
        at: Budgets in evaluations.
        rng: Draws the sample of a hypervolume in more than four dimensions.
    """
    found = diversity(answers.rewards, answers.valid) if len(answers.rewards) else Diversity(None, None, 0, 0)
    order = np.argsort(answers.spent, kind="stable")
    best = np.maximum.accumulate(answers.scores[order]) if len(order) else np.zeros(0)
    reached = np.searchsorted(answers.spent[order], at, side="right")
    return {
        "score": float(best[-1]) if len(best) else 0.0,
        "best_by": np.where(reached > 0, best[np.maximum(reached - 1, 0)], 0.0) if len(best) else np.zeros(len(at)),
        "diversity_all": _known(found.every),
        "diversity": _known(found.valid),
        "hypervolume": _volume(answers.rewards[answers.valid], rng),
    }


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


def _volume(points: FloatArray, rng: np.random.Generator) -> float:
    if not len(points):
        return 0.0
    # A value beyond its declared range would make the box, and so the share, larger than it is for others.
    points = np.unique(np.minimum(points, 1.0), axis=0)
    front = points[pareto_front(points)]
    reference = np.full(front.shape[1], -_BELOW)
    found = hypervolume(front, reference, rng, _DRAWS, exact_points=_EXACT_POINTS)
    return float(found.value / (1.0 + _BELOW) ** front.shape[1])


def health(answers: Answers, completions: Completions, voice: int) -> FloatArray:
    """Return the numbers of one policy of a run, shape (len(VOICE),)."""
    asked = completions.voice == voice
    mine = answers.voice == voice
    tokens = np.where(np.isfinite(completions.surprise), completions.tokens, 0.0)[asked]
    surprise = np.nan_to_num(completions.surprise[asked])
    scored = mine & answers.valid
    within, across = spread(answers.rewards[scored], answers.rollout[scored])
    return np.array(
        [
            asked.sum(),
            mine.sum(),
            (tokens @ surprise) / tokens.sum() if tokens.sum() > 0 else np.nan,
            _share(completions.unreadable[asked]),
            _share(~answers.valid[mine]),
            _share(answers.duplicate[mine]),
            _share(answers.scores[mine]),
            within,
            across,
        ]
    )


def _share(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if len(values) else float("nan")
