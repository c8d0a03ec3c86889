"""Configuration and checked input that the advantage estimators share."""

from enum import StrEnum
from math import log
from typing import Annotated, Final

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import ROUNDING

FINITE: Final = ConfigDict(allow_inf_nan=False)
_LEAST: Final = 1e-150
"""Difference whose square float64 still represents."""


class Norm(StrEnum):
    """Divisor of the leave-one-out shares of Max-at-K."""

    GROUP_STD = "group_std"
    """The standard deviation of the group. Biases the gradient towards prompts with small differences."""
    BATCH_STD = "batch_std"
    NONE = "none"
    """Nothing: the estimator is unbiased."""


@pydantic.dataclasses.dataclass(frozen=True, config=FINITE)
class EstimatorConfig:
    """Options of the estimators. Every default is the paper's; an estimator ignores fields that it does not use."""

    weights: tuple[NonNegativeFloat, ...] | None = None
    """w*, shape (k,), ≥ 0 and not all 0, the scalarization of scalar estimators; None is the mean."""
    draws: PositiveInt = 100
    """K, random weightings of each group."""
    alpha: PositiveFloat = 1.0
    """Concentration of their Dirichlet distribution."""
    kappa: PositiveInt | None = None
    """κ of Max-at-K and Vector Max-at-K; None is half the group, at most 8."""
    norm: Norm = Norm.GROUP_STD
    """Divisor of their shares."""
    epsilon: NonNegativeFloat = 1e-6
    """Added to the mean in ``maxrl``."""
    entropic_kl: PositiveFloat = log(2)
    """Nats of KL(softmax(βr) ‖ uniform) that set each group's β in ``entropic``; less than the logarithm of the group's
    size. The paper uses ln 2."""
    blend: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Largest share α of PKPO beside Dr. GRPO in ``pkpo``."""
    anneal: NonNegativeInt = 200
    """Steps in which α rises from 0 to ``blend``; 0 for ``blend`` from the start."""
    step: NonNegativeInt = 0
    """Updates before this one, from which ``pkpo`` computes α."""

    def __post_init__(self) -> None:
        if self.weights is not None and not any(self.weights):
            raise InvalidInputError(f"weights = {self.weights}: expected numbers of at least 0, not all 0.")


class RewardBatch:
    """Validated rewards with the group statistics that the estimators share.

    Attributes:
        rewards: Shape (B, m, k).
        index: Shape (B,): position of each rollout's group among the sorted groups.
        count: Number of groups.
        dimensions: k.
        by_size: For every group size n, the rollouts of those groups, shape (groups of that size, n).
    """

    def __init__(self, rewards: FloatArray, groups: IntArray, *, single: bool = False) -> None:
        self.rewards = np.asarray(rewards, dtype=np.float64)
        _check(self.rewards, single=single)
        self.dimensions = self.rewards.shape[2]
        _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        self.index: IntArray = index.reshape(-1)
        self.count, self._sizes = len(sizes), sizes
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(sizes) - sizes
        self.by_size: list[IntArray] = [
            order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)
        ]

    @property
    def answers(self) -> FloatArray:
        """The only answer of each rollout, shape (B, k)."""
        return self.rewards[:, 0]

    def scalarization(self, config: EstimatorConfig) -> FloatArray:
        """Return w*, shape (k,)."""
        if config.weights is None:
            return np.full(self.dimensions, 1.0 / self.dimensions)
        if len(config.weights) != self.dimensions:
            raise InvalidInputError(f"{len(config.weights)} weights for {self.dimensions} rewards: expected one each.")
        return np.asarray(config.weights, dtype=np.float64)

    def weightings(self, config: EstimatorConfig, rng: np.random.Generator) -> list[tuple[IntArray, FloatArray]]:
        """Return, for every group size, the rollouts (g, n) and the groups' weightings (g, K, k)."""
        drawn = rng.dirichlet(np.full(self.dimensions, config.alpha), (self.count, config.draws))
        return [(members, drawn[self.index[members[:, 0]]]) for members in self.by_size]

    def unscaled(self, scores: FloatArray, values: FloatArray, scale: FloatArray | None = None) -> FloatArray:
        """Return values, but zeros in groups whose scores differ by rounding errors only, all of shape (B,).

        ``scale`` are the numbers that the scores were computed from, by default the scores.
        """
        values = values.copy()
        for members in self.by_size:
            equal = _equal((scores if scale is None else scale)[members], scores[members], axis=1)
            values[members[equal]] = 0.0
        return values

    def group_mean(self, scores: FloatArray) -> FloatArray:
        """Return each rollout's group mean, shape (B,)."""
        mean: FloatArray = (np.bincount(self.index, scores) / self._sizes)[self.index]
        return mean

    def group_std(self, scores: FloatArray) -> FloatArray:
        """Return each rollout's population standard deviation within its group, shape (B,)."""
        squares = np.bincount(self.index, (scores - self.group_mean(scores)) ** 2) / self._sizes
        std: FloatArray = np.sqrt(squares)[self.index]
        return std

    def standardised(self, scores: FloatArray) -> FloatArray:
        """Return (score − mean) / std within each group; groups without differences get zeros."""
        std = self.group_std(scores)
        return self.unscaled(scores, (scores - self.group_mean(scores)) / np.where(std > 0.0, std, 1.0))

    def scaled(self, scores: FloatArray, shares: FloatArray, norm: Norm) -> FloatArray:
        """Return leave-one-out shares of scores, divided as ``norm`` says."""
        match norm:
            case Norm.GROUP_STD:
                scale = self.group_std(shares)
            case Norm.BATCH_STD:
                scale = np.full_like(shares, shares.std())
            case Norm.NONE:
                scale = np.ones_like(shares)
        # Division would inflate rounding errors, which are as large as those of the scores; true shares may be small.
        return self.unscaled(shares, shares / np.where(scale > 0.0, scale, 1.0), scores)


def _check(rewards: FloatArray, *, single: bool) -> None:
    if rewards.ndim != 3 or not rewards.size:
        raise InvalidInputError(f"rewards have the shape {rewards.shape}: expected (rollouts, answers, k), none 0.")
    bad = rewards[~((rewards >= 0.0) & (rewards <= 1.0))]  # NaN is neither
    if bad.size:
        raise InvalidInputError(f"a reward is {bad[0]}: expected a number in [0, 1].")
    if single and rewards.shape[1] != 1:
        raise InvalidInputError(f"rollouts have {rewards.shape[1]} answers: this estimator requires one, unlike vpo.")


def _equal(scale: FloatArray, numbers: FloatArray, axis: int) -> NDArray[np.bool_]:
    """Return True where numbers along an axis differ by rounding errors of ``scale`` only."""
    equal: NDArray[np.bool_] = np.ptp(numbers, axis=axis) <= np.maximum(ROUNDING * np.abs(scale).max(axis=axis), _LEAST)
    return equal


def correlations(varying: FloatArray) -> FloatArray:
    """Return the correlation of each pair of columns, none of which is constant."""
    if varying.shape[1] < 2:
        return np.zeros(0)
    matrix = np.atleast_2d(np.corrcoef(varying, rowvar=False))
    pairs: FloatArray = matrix[np.triu_indices(len(matrix), 1)]
    return pairs
