"""The entropic objective and PKPO against brute force, and the properties that their papers state."""

from itertools import combinations, product
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from speciate.domain.errors import InvalidInputError
from speciate.training.advantages import ESTIMATORS, annealed_share
from speciate.training.reward_batch import EstimatorConfig

rewards_of_a_group = st.lists(st.integers(0, 20), min_size=3, max_size=9).map(lambda ns: [n / 20 for n in ns])


def advantages(name, rewards, **config):
    array = np.asarray(rewards, dtype=float).reshape(-1, 1, 1)
    groups, rng = np.zeros(len(array), dtype=int), np.random.default_rng(0)
    return ESTIMATORS[name](array, groups, config=EstimatorConfig(**config), rng=rng)


def divergence(rewards, beta):
    weights = [exp(beta * (r - max(rewards))) for r in rewards]
    shares = [w / sum(weights) for w in weights]
    return sum(p * log(p * len(rewards)) for p in shares if p > 0)


def brute_entropic(rewards, target):
    """Advantages at the β found on a logarithmic scale, in plain floats."""
    low, high = -20.0, log(60 / (max(rewards) - min(rewards)))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if divergence(rewards, exp(middle)) > target else (middle, high)
    weights = [exp(exp(low) * (r - max(rewards))) for r in rewards]
    n = len(rewards)
    return [w / ((sum(weights) - w) / (n - 1)) - 1 for w in weights]


@given(rewards_of_a_group, st.sampled_from([0.1, 0.4, log(2)]))
def test_entropic_weighs_by_the_beta_of_the_groups_divergence(rewards, target):
    got = advantages("entropic", rewards, entropic_kl=target)
    if min(rewards) == max(rewards):
        assert (got == 0).all()
    else:
        assert got == pytest.approx(brute_entropic(rewards, target), rel=1e-6, abs=1e-9)


@given(rewards_of_a_group)
def test_entropic_does_not_depend_on_scale_or_offset(rewards):
    moved = [0.3 + r / 2 for r in rewards]
    assert advantages("entropic", moved) == pytest.approx(advantages("entropic", rewards), rel=1e-6, abs=1e-9)


@given(rewards_of_a_group)
def test_entropic_ranks_as_the_rewards_do_and_stays_bounded(rewards):
    got = advantages("entropic", rewards)
    assert np.isfinite(got).all()
    assert all(got[i] >= got[j] for i, j in product(range(len(rewards)), repeat=2) if rewards[i] >= rewards[j])
    assert got.max() < 20


def test_entropic_needs_three_answers():
    with pytest.raises(InvalidInputError, match="a group has 2 answers: entropic expects at least 3"):
        advantages("entropic", [0.0, 1.0])


def test_entropic_needs_a_divergence_that_a_group_can_exceed():
    rewards = [0.0, 0.2, 0.5, 1.0]
    for target in (log(4), 5.0):
        with pytest.raises(InvalidInputError, match=r"in a group of 4 answers: expected less than 1\.386 nats, ln 4"):
            advantages("entropic", rewards, entropic_kl=target)


def test_entropic_sums_small_weights_without_cancellation():
    for gap in (1e-13, 1e-15):
        got = advantages("entropic", [0.0, 0.0, 0.0, 1.0], entropic_kl=log(4) - gap)
        beta = log(got[3] + 1)  # three equal weights exp(−β) beside the best answer's 1
        assert beta <= 60 + 1e-9
        assert 3 * exp(-beta) * (beta + 1) == pytest.approx(gap, rel=0.01, abs=1e-15)


def brute_pkpo(rewards, kappa):
    """Return the paper's s^(loo−1): over all κ-subsets with i, the maximum minus the maximum without i."""
    n = len(rewards)
    sets = list(combinations(range(n), kappa))
    return [
        sum(max(rewards[j] for j in s) - max(rewards[j] for j in s if j != i) for s in sets if i in s) / len(sets)
        for i in range(n)
    ]


@given(rewards_of_a_group, st.integers(2, 4))
def test_pkpo_is_the_gain_of_every_subset(rewards, kappa):
    kappa = min(kappa, len(rewards) - 1)
    got = advantages("pkpo", rewards, kappa=kappa, blend=1.0, anneal=0)
    if min(rewards) == max(rewards):
        assert (got == 0).all()
    else:
        assert got == pytest.approx(brute_pkpo(rewards, kappa), abs=1e-9)


def test_pkpo_is_an_unbiased_gradient_of_pass_at_k():
    """Over all samples of a softmax bandit, the mean of the estimator is the gradient of E[max of κ]."""
    arms, p, n, kappa = np.array([0.9, 0.2, 0.5]), np.array([0.5, 0.2, 0.3]), 4, 2
    estimate, exact = np.zeros(3), np.zeros(3)
    for sample in product(range(3), repeat=n):
        values = advantages("pkpo", arms[list(sample)], kappa=kappa, blend=1.0, anneal=0)
        estimate += np.prod(p[list(sample)]) * values @ (np.eye(3)[list(sample)] - p)
    for sample in product(range(3), repeat=kappa):
        score = (np.eye(3)[list(sample)] - p).sum(axis=0)
        exact += np.prod(p[list(sample)]) * arms[list(sample)].max() * score
    assert estimate == pytest.approx(exact, abs=1e-12)


@given(rewards_of_a_group, st.integers(0, 300))
def test_pkpo_is_blended_in_over_the_steps(rewards, step):
    share = 0.8 * min(1, step / 200)
    assert annealed_share(EstimatorConfig(step=step)) == pytest.approx(share)
    pure, plain = (advantages("pkpo", rewards, kappa=2, blend=b, anneal=0) for b in (1.0, 0.0))
    assert plain == pytest.approx(np.array(rewards) - np.mean(rewards), abs=1e-12)
    mixed = advantages("pkpo", rewards, kappa=2, step=step)
    assert mixed == pytest.approx(share * pure + (1 - share) * plain, abs=1e-9)


def test_pkpo_with_one_sample_is_the_mean():
    rewards = [0.1, 0.4, 0.7]
    got = advantages("pkpo", rewards, kappa=1, blend=1.0, anneal=0)
    assert got == pytest.approx([(r - (1.2 - r) / 2) / 3 for r in rewards])


@pytest.mark.parametrize(
    ("config", "words"),
    [({"entropic_kl": 0}, "entropic_kl"), ({"entropic_kl": inf}, "finite"), ({"blend": 1.1}, "blend"),
     ({"anneal": -1}, "anneal")],
)  # fmt: skip
def test_invalid_configurations_are_reported(config, words):
    with pytest.raises(ValidationError, match=words):
        EstimatorConfig(**config)
