"""Weightings: simplex, Dirichlet distribution, and evenly spread Sobol points."""

import numpy as np
import pytest

from speciate.training.weightings import WeightingSampler, draw_weightings


def draw(groups, draws, k, alpha=1.0, sampler=WeightingSampler.IID, seed=0):
    return draw_weightings(groups, draws, k, alpha=alpha, sampler=sampler, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("sampler", WeightingSampler)
@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_weightings_lie_on_the_simplex(sampler, alpha, k):
    drawn = draw(3, 50, k, alpha, sampler)
    assert drawn.shape == (3, 50, k)
    assert (drawn >= 0).all()
    assert np.allclose(drawn.sum(axis=-1), 1)


@pytest.mark.parametrize("sampler", WeightingSampler)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_mean_and_variance_are_those_of_the_dirichlet_distribution(sampler, alpha):
    k = 4
    drawn = draw(400, 64, k, alpha, sampler).reshape(-1, k)
    assert np.allclose(drawn.mean(axis=0), 1 / k, atol=0.01)
    assert np.allclose(drawn.var(axis=0), (k - 1) / (k**2 * (k * alpha + 1)), rtol=0.06)


def test_sobol_estimates_vary_less():
    """The mean over draws of a maximum of scalarizations, which is what VPO averages."""
    answers = np.random.default_rng(5).random((3, 4))

    def variance(sampler, alpha):
        return (draw(500, 64, 4, alpha, sampler) @ answers.T).max(axis=-1).mean(axis=-1).var()

    for alpha in (1.0, 2.0):
        assert variance(WeightingSampler.SOBOL, alpha) < variance(WeightingSampler.IID, alpha) / 2


@pytest.mark.parametrize("sampler", WeightingSampler)
def test_equal_seeds_give_equal_weightings(sampler):
    assert np.array_equal(draw(2, 8, 3, sampler=sampler, seed=7), draw(2, 8, 3, sampler=sampler, seed=7))
    assert not np.array_equal(draw(2, 8, 3, sampler=sampler, seed=7), draw(2, 8, 3, sampler=sampler, seed=8))
