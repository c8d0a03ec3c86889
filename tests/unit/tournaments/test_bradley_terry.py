"""Bradley–Terry strengths against a textbook, a generic optimiser, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.bradley_terry import Strengths, applies, bradley_terry, pairwise_outcomes

# American League 1987, Agresti, Categorical Data Analysis (2002), table 10.10: Milwaukee, Detroit, Toronto, New York,
# Boston, Cleveland, Baltimore.
BASEBALL = np.array(
    [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ],
    dtype=float,
)


def chances(fitted: Strengths) -> FloatArray:
    """Return P(i beats j) + ½ P(tie), shape (m, m)."""
    half = np.exp((fitted.strength[:, None] - fitted.strength) / 2)
    return (half + np.exp(fitted.log_tie) / 2) / (half + 1 / half + np.exp(fitted.log_tie))


def test_agrestis_baseball_teams() -> None:
    seen = bradley_terry(BASEBALL[None], np.zeros((1, 7, 7)), prior_sd=1e4)
    assert seen.strength - seen.strength[-1] == pytest.approx([1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0], abs=1e-3)
    assert seen.log_tie == -np.inf
    assert chances(seen) + chances(seen).T == pytest.approx(np.ones((7, 7)))
    # Expected wins equal observed wins: the defining property of maximum likelihood.
    assert ((BASEBALL + BASEBALL.T) * chances(seen)).sum(axis=1) == pytest.approx(BASEBALL.sum(axis=1), abs=1e-6)


def test_ties_are_davidsons() -> None:
    wins = np.array([[[0, 8, 5], [3, 0, 6], [2, 5, 0]]], dtype=float)
    ties = np.array([[[0, 4, 1], [4, 0, 3], [1, 3, 0]]], dtype=float)

    def loss(x: np.ndarray) -> float:
        total = 0.5 * float(x @ x) / 9.0
        for i, j in ((0, 1), (0, 2), (1, 2)):
            win, lose, tie = np.exp(x[i]), np.exp(x[j]), np.exp(x[3] + (x[i] + x[j]) / 2)
            for weight, count in ((win, wins[0, i, j]), (lose, wins[0, j, i]), (tie, ties[0, i, j])):
                total -= float(count * np.log(weight / (win + lose + tie)))
        return total

    found = optimize.minimize(loss, np.zeros(4), tol=1e-12).x
    seen = bradley_terry(wins, ties, prior_sd=3.0)
    assert [*seen.strength, seen.log_tie] == pytest.approx(found, abs=1e-4)
    win, lose, tie = np.exp(found[0]), np.exp(found[1]), np.exp(found[3] + (found[0] + found[1]) / 2)
    assert chances(seen)[0, 1] == pytest.approx((win + tie / 2) / (win + lose + tie), abs=1e-4)


def simulated(rng: np.random.Generator, strength: np.ndarray, problems: int, seeds: int) -> np.ndarray:
    """Return scores whose order follows Bradley–Terry exactly, with one draw per policy and problem for all seeds."""
    luck = rng.gumbel(size=(problems, 1, len(strength)))
    return np.repeat(strength + luck, seeds, axis=1)


def test_intervals_hold_with_dependent_seeds() -> None:
    rng, strength = np.random.default_rng(3), np.array([-0.6, -0.2, 0.2, 0.6])
    held = np.zeros(4)
    for _ in range(200):
        seen = bradley_terry(*pairwise_outcomes(simulated(rng, strength, 40, 6)), prior_sd=100.0)
        held += (seen.low <= strength) & (strength <= seen.high)
    assert 0.9 <= held.mean() / 200 <= 0.98


def test_a_policy_that_lost_everything_has_a_strength_and_a_wide_interval() -> None:
    scores = np.random.default_rng(0).random((40, 1, 4))
    scores[:, :, 3] = -1.0
    seen = bradley_terry(*pairwise_outcomes(scores))
    assert np.isfinite(seen.strength).all()
    assert seen.strength.argmin() == 3
    assert seen.high[3] - seen.low[3] > 2 * (seen.high[0] - seen.low[0])
    assert seen.strength.sum() == pytest.approx(0.0, abs=1e-9)


def test_all_ties_are_equal_strengths() -> None:
    seen = bradley_terry(*pairwise_outcomes(np.ones((30, 2, 4))))
    assert seen.strength == pytest.approx(np.zeros(4))
    assert chances(seen) == pytest.approx(np.full((4, 4), 0.5))


@pytest.mark.parametrize("prior_sd", [1.0, 1e3])
def test_extreme_counts_converge(prior_sd: float) -> None:
    # The gradient of the log posterior vanishes: for the tie, 622 P(not tie) = η / prior_sd², here with η well above 0.
    seen = bradley_terry(np.zeros((1, 2, 2)), 622.0 * (1 - np.eye(2))[None], prior_sd=prior_sd)
    assert 622 * 2 / (2 + np.exp(seen.log_tie)) == pytest.approx(seen.log_tie / prior_sd**2, rel=1e-6)
    beaten = np.zeros((1, 2, 2))
    beaten[0, 0, 1] = 9999.0
    alone = bradley_terry(beaten, np.zeros((1, 2, 2)), prior_sd=prior_sd)
    assert 9999 * chances(alone)[1, 0] == pytest.approx(alone.strength[0] / prior_sd**2, rel=1e-6)


def test_comparisons_pair_seeds_and_skip_missing_runs() -> None:
    wins, ties = pairwise_outcomes([[[1.0, 0.0, np.nan], [0.0, 0.0, 2.0]]])
    assert wins[0].tolist() == [[0, 1, 0], [0, 0, 0], [1, 1, 0]]
    assert ties[0].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_strengths_apply_to_many_policies_or_incomplete_tables() -> None:
    everyone = np.random.default_rng(0).random((5, 2, 4))
    assert applies(*pairwise_outcomes(everyone))
    assert not applies(*pairwise_outcomes(everyone[:, :, :3]))
    holes = everyone[:, :, :3].copy()
    holes[:3, :, 0] = holes[3:, :, 1] = np.nan
    assert applies(*pairwise_outcomes(holes))


@pytest.mark.parametrize("seed", range(20))
def test_choix_finds_the_same_strengths(seed: int) -> None:
    choix = pytest.importorskip("choix")
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    wins = rng.integers(1, 30, (n, n)).astype(float)
    np.fill_diagonal(wins, 0.0)
    seen = bradley_terry(wins[None], np.zeros((1, n, n)), prior_sd=1e5)
    # Two independent methods: I-LSR and Newton's method.
    pairs = [(i, j) for i in range(n) for j in range(n) for _ in range(int(wins[i, j]))]
    for found in (choix.ilsr_pairwise_dense(wins, max_iter=1000, tol=1e-12), choix.opt_pairwise(n, pairs, tol=1e-12)):
        assert seen.strength == pytest.approx(found - found.mean(), abs=1e-5)
