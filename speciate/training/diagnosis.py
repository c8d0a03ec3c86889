"""Tell from sampled answers how much a training on reward vectors can gain over one on their mean."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.reward import pareto_front
from speciate.training.reward_batch import correlations

_WEIGHTINGS: Final = 200
_COLLINEAR_GAIN: Final = 0.01
"""Gain below which a vector estimator and the scalar best of a set gave the same trainings (``python-easy``: .003)."""


@dataclass(frozen=True, slots=True)
class RewardDiagnosis:
    """What the rewards of a base's answers leave to a vector estimator."""

    problems: int
    answers: int
    """Readable answers to all of them."""
    nothing: float
    """Share of answers whose rewards are all 0."""
    everything: float
    """Share of answers whose rewards are all 1."""
    correlation: float | None
    """Mean correlation between two components over all answers; None if fewer than two vary."""
    first_component: float | None
    """Share of the variance that the first principal component holds; None without variance."""
    trade_offs: int
    """Problems with more than one nondominated vector."""
    gain: float
    """E_w of the best wᵀr minus the best mean reward of each problem's answers, w ~ Dir(1), mean over problems."""

    @classmethod
    def of(cls, vectors: Sequence[FloatArray]) -> Self:
        """Diagnose the rewards of each problem's answers, shape (n, k), in [0, 1], higher is better; k may differ."""
        vectors = [each for each in vectors if len(each)]
        if not vectors:
            return cls(0, 0, 0.0, 0.0, None, None, 0, 0.0)
        sizes = sorted({each.shape[1] for each in vectors})
        pooled = [np.concatenate([each for each in vectors if each.shape[1] == k]) for k in sizes]
        weights = {k: np.random.default_rng(0).dirichlet(np.ones(k), size=_WEIGHTINGS) for k in sizes}
        gains = [(each @ weights[each.shape[1]].T).max(axis=0).mean() - each.mean(axis=1).max() for each in vectors]
        pairs = np.concatenate([correlations(each[:, np.ptp(each, axis=0) > 0]) for each in pooled])
        variances = [np.linalg.svd(each - each.mean(axis=0), compute_uv=False) ** 2 for each in pooled]
        first, whole = (sum(map(part, variances)) for part in (np.max, np.sum))
        fronts = [len(np.unique(each[pareto_front(each)], axis=0)) for each in vectors]
        return cls(
            problems=len(vectors),
            answers=sum(map(len, vectors)),
            nothing=float(np.concatenate([each.max(axis=1) <= 0 for each in vectors]).mean()),
            everything=float(np.concatenate([each.min(axis=1) >= 1 for each in vectors]).mean()),
            correlation=float(pairs.mean()) if len(pairs) else None,
            first_component=float(first / whole) if whole > 0 else None,
            trade_offs=sum(size > 1 for size in fronts),
            # The draws' mean weighting is not exactly uniform, which can make a gain of zero slightly negative.
            gain=max(0.0, float(np.mean(gains))),
        )

    @property
    def verdict(self) -> str:
        if not self.answers or 1.0 in (self.nothing, self.everything):
            return "The rewards are all 0 or all 1, so no estimator can learn: take another task or another base."
        if self.gain < _COLLINEAR_GAIN:
            return "The vectors are collinear: VPO reduces to scalar training here. Train with grpo, or add rewards."
        return "The rewards hold trade-offs: vpo and vector_max_at_k can gain over a scalar estimator."

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "answers", f"{self.answers:,} to {self.problems} problems"
        mixed = 1.0 - self.nothing - self.everything
        yield "rewards all 0, all 1, mixed", f"{self.nothing:.0%}, {self.everything:.0%}, {max(0.0, mixed):.0%}"
        yield "mean correlation of components", _text(self.correlation)
        yield "share of the first principal component", _text(self.first_component)
        yield "problems with a trade-off", f"{self.trade_offs} of {self.problems}"
        yield "E_w gain over the best mean reward", f"{self.gain:.4f}"


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
