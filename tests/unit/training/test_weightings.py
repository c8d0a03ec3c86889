"""Weightings lie on the simplex and have the Dirichlet distribution."""

import numpy as np
import pytest

from speciate.training.weightings import draw_weightings


def draw(groups, draws, k, alpha=1.0, seed=0):
    return draw_weightings(groups, draws, k, alpha=alpha, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_weightings_lie_on_the_simplex(alpha, k):
    drawn = draw(3, 50, k, alpha)
    assert drawn.shape == (3, 50, k)
    assert (drawn >= 0).all()
    assert np.allclose(drawn.sum(axis=-1), 1)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_mean_and_variance_are_those_of_the_dirichlet_distribution(alpha):
    k = 4
    drawn = draw(400, 64, k, alpha).reshape(-1, k)
    assert np.allclose(drawn.mean(axis=0), 1 / k, atol=0.01)
    assert np.allclose(drawn.var(axis=0), (k - 1) / (k**2 * (k * alpha + 1)), rtol=0.06)
