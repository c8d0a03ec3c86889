"""Estimators against independent brute force, and the identities that must hold between them."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import LearningEstimator
from speciate.training.advantages import ESTIMATORS
from speciate.training.reward_batch import EstimatorConfig, Norm

MULTI_ANSWER = {each.value for each in LearningEstimator if each.takes_sets}
CENTRED = sorted(ESTIMATORS.keys() - MULTI_ANSWER - {"entropic", "pkpo"})


def rng(seed=0):
    return np.random.default_rng(seed)


def advantages(name, rewards, groups, seed=0, **config):
    return ESTIMATORS[name](
        np.asarray(rewards, dtype=float), np.asarray(groups), config=EstimatorConfig(**config), rng=rng(seed)
    )


@st.composite
def batches(draw, answers=1, min_group=3):
    """Rewards and groups of several sizes, in any order; coarse values, so that ties are common."""
    sizes = draw(st.lists(st.integers(min_group, 6), min_size=1, max_size=4))
    k = draw(st.integers(1, 4))
    groups = np.repeat(np.arange(len(sizes)) * 7 - 3, sizes)
    seed = draw(st.integers(0, 2**32 - 1))
    made = rng(seed)
    rewards = made.integers(0, 5, (len(groups), answers, k)) / 4
    order = made.permutation(len(groups))
    return rewards[order], groups[order]


def z(scores, groups):
    out = np.zeros(len(scores))
    for group in set(groups.tolist()):
        members = groups == group
        std = scores[members].std()
        if std >= 1e-6:
            out[members] = (scores[members] - scores[members].mean()) / std
    return out


@given(batches())
def test_grpo_is_the_group_z_norm_of_the_mean(batch):
    rewards, groups = batch
    assert np.allclose(advantages("grpo", rewards, groups), z(rewards[:, 0].mean(axis=1), groups))


@given(batches())
def test_gdpo_averages_the_components_advantages(batch):
    rewards, groups = batch
    expected = np.mean([z(rewards[:, 0, i], groups) for i in range(rewards.shape[2])], axis=0)
    assert np.allclose(advantages("gdpo", rewards, groups), expected)


def test_gdpo_averages_by_the_declared_weights():
    rewards = [[[1.0, 0.0]], [[0.0, 1.0]]] * 2
    assert advantages("gdpo", rewards, [0] * 4, weights=(1.0, 0.0)).tolist() == [1.0, -1.0, 1.0, -1.0]
    assert advantages("gdpo", rewards, [0] * 4, weights=(3.0, 1.0)).tolist() == [0.5, -0.5, 0.5, -0.5]
    assert (advantages("gdpo", rewards, [0] * 4) == 0).all()


@given(batches())
def test_maxrl_divides_by_the_mean(batch):
    rewards, groups = batch
    got = advantages("maxrl", rewards, groups)
    scores = rewards[:, 0].mean(axis=1)
    for i, group in enumerate(groups):
        members = scores[groups == group]
        expected = 0 if members.std() < 1e-6 else (scores[i] - members.mean()) / (members.mean() + 1e-6)
        assert got[i] == pytest.approx(expected)


@given(batches(answers=3))
def test_multi_rlvr_sums_over_answers(batch):
    rewards, groups = batch
    assert np.allclose(advantages("multi_rlvr", rewards, groups), z(rewards.mean(axis=2).sum(axis=1), groups))


@given(batches(answers=3))
@settings(max_examples=30)
def test_vpo_is_the_mean_of_maxima_under_weightings_shared_by_the_group(batch):
    rewards, groups = batch
    got = advantages("vpo", rewards, groups, seed=5, draws=7)
    names = np.unique(groups)
    drawn = rng(5).dirichlet(np.ones(rewards.shape[2]), (len(names), 7))
    scores = np.array(
        [
            np.mean([max(float(w @ answer) for answer in rewards[b]) for w in drawn[np.searchsorted(names, group)]])
            for b, group in enumerate(groups)
        ]
    )
    assert np.allclose(got, z(scores, groups), atol=1e-9)


def brute_credit(scores, i, kappa):
    others = [scores[j] for j in range(len(scores)) if j != i]
    joined = [max([scores[i], *subset]) for subset in combinations(others, kappa - 1)]
    left_out = [max(subset) for subset in combinations(others, kappa)]
    return np.mean(joined) - np.mean(left_out)


@given(batches(), st.integers(1, 2))
def test_max_at_k_is_the_leave_one_out_share_of_every_subset(batch, kappa):
    rewards, groups = batch
    got = advantages("max_at_k", rewards, groups, kappa=kappa, norm=Norm.NONE)
    scores = rewards[:, 0].mean(axis=1)
    for group in np.unique(groups):
        (members,) = np.nonzero(groups == group)
        expected = [brute_credit(scores[members], i, kappa) for i in range(len(members))]
        assert np.allclose(got[members], expected, atol=1e-12)


@given(batches(), st.integers(1, 2))
@settings(max_examples=30)
def test_vector_max_at_k_averages_that_over_weightings(batch, kappa):
    rewards, groups = batch
    got = advantages("vector_max_at_k", rewards, groups, seed=3, kappa=kappa, draws=5, norm=Norm.NONE)
    names = np.unique(groups)
    drawn = rng(3).dirichlet(np.ones(rewards.shape[2]), (len(names), 5))
    for g, group in enumerate(names):
        (members,) = np.nonzero(groups == group)
        points = drawn[g] @ rewards[members, 0].T
        expected = [np.mean([brute_credit(row, i, kappa) for row in points]) for i in range(len(members))]
        assert np.allclose(got[members], expected, atol=1e-12)


def test_vector_max_at_k_is_an_unbiased_gradient():
    """Over all samples of a softmax bandit, the mean of the estimator is the gradient of E[max of κ]."""
    arms = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    logits, n, kappa, weighting = np.array([0.3, -0.2, 0.1]), 4, 2, np.array([[0.3, 0.7], [0.8, 0.2]])
    p = np.exp(logits) / np.exp(logits).sum()
    estimate = np.zeros(3)
    for sample in product(range(3), repeat=n):
        rewards = arms[list(sample)]
        shares = np.mean([[brute_credit(rewards @ w, i, kappa) for i in range(n)] for w in weighting], axis=0)
        score = np.eye(3)[list(sample)] - p
        estimate += np.prod(p[list(sample)]) * (shares[:, None] * score).sum(axis=0)
    exact = np.zeros(3)
    for sample in product(range(3), repeat=kappa):
        best = np.mean([(arms[list(sample)] @ w).max() for w in weighting])
        exact += np.prod(p[list(sample)]) * best * (np.eye(3)[list(sample)] - p).sum(axis=0)
    # The sum over n answers of leave-one-out shares estimates (n/κ) times the gradient of E[max of κ].
    assert np.allclose(estimate / n * kappa, exact, atol=1e-12)


@given(batches())
def test_with_one_answer_vpo_is_the_expected_scalarization(batch):
    rewards, groups = batch
    names = np.unique(groups)
    drawn = rng(1).dirichlet(np.ones(rewards.shape[2]), (len(names), 9))
    scores = np.einsum("bk,bk->b", rewards[:, 0], drawn.mean(axis=1)[np.searchsorted(names, groups)])
    assert np.allclose(advantages("vpo", rewards, groups, seed=1, draws=9), z(scores, groups), atol=1e-8)


@given(batches())
def test_vector_max_at_one_dimension_is_max_at_k(batch):
    rewards, groups = batch
    one = rewards[:, :, :1]
    vector, scalar = (advantages(name, one, groups, kappa=2) for name in ("vector_max_at_k", "max_at_k"))
    assert np.allclose(vector, scalar)


@given(batches(answers=3))
def test_a_repeated_answer_adds_nothing_to_vpo(batch):
    rewards, groups = batch
    repeated = np.concatenate([rewards, rewards[:, :1]], axis=1)
    assert np.allclose(advantages("vpo", rewards, groups, draws=5), advantages("vpo", repeated, groups, draws=5))


def test_a_specialist_beats_a_copy():
    copies = [[1.0, 0.0], [1.0, 0.0]]
    specialists = [[1.0, 0.0], [0.0, 1.0]]
    values = advantages("vpo", [copies, specialists], [0, 0])
    assert values[1] > 0 > values[0]
    # Single answers: of three, the one that covers another corner wins.
    values = advantages("vector_max_at_k", [[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]], [0, 0, 0], kappa=2)
    assert values[2] > values[0] == pytest.approx(values[1])
    assert np.allclose(advantages("grpo", [[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]], [0, 0, 0]), 0)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_the_order_of_rollouts_does_not_matter(name):
    made = rng(2)
    rewards = made.random((24, 3 if name in MULTI_ANSWER else 1, 4))
    groups = np.repeat([4, 9, 2], 8)
    order = made.permutation(24)
    straight, mixed = (advantages(name, rewards[o], groups[o]) for o in (np.arange(24), order))
    assert np.allclose(straight[order], mixed)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_groups_without_differences_have_zero_advantages(name):
    rewards = np.full((8, 1, 3), 0.3)
    assert (advantages(name, rewards, [0] * 4 + [1] * 4) == 0).all()


@pytest.mark.parametrize("name", ["max_at_k", "vector_max_at_k"])
def test_small_shares_of_large_groups_are_no_rounding_errors(name):
    rewards = np.repeat([0.1, 0.0], [16, 8]).reshape(-1, 1, 1)  # 8 of 24 hold no 0.1 once in 735,471 draws
    values = advantages(name, rewards, [0] * 24)
    assert values.std() == pytest.approx(1.0)
    assert (values[:16] > 0).all()
    assert (values[16:] < 0).all()
    # One 0 less, and every 8 of 24 hold a 0.1: the shares are 0 but for rounding.
    rewards[16] = 0.1
    assert (advantages(name, rewards, [0] * 24) == 0).all()


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_small_rewards_differ_and_rounding_errors_do_not(name):
    rewards = np.repeat(rng(3).random((8, 1, 3)), 3 if name in MULTI_ANSWER else 1, axis=1)
    for factor in (1e-7, 1e-200):
        small = advantages(name, factor * rewards, [0] * 8)
        assert np.isfinite(small).all()
        assert small.any() == (factor > 1e-100)
    almost = 0.1 + 1e-15 * rewards
    assert (advantages(name, almost, [0] * 8) == 0).all()


@pytest.mark.parametrize("name", CENTRED)
def test_values_are_centred_in_every_group(name):
    rewards, groups = rng(4).random((32, 1, 3)), np.repeat(np.arange(4), 8)
    values = advantages(name, rewards, groups)
    assert np.allclose([values[groups == g].mean() for g in range(4)], 0, atol=1e-9)


def test_a_vector_that_differs_counts_even_where_the_mean_does_not():
    rewards = [[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]], [[0.5, 0.5]]]
    found = advantages("vector_max_at_k", rewards, [0] * 4)
    assert (found != 0).all()


@pytest.mark.parametrize("norm", Norm)
def test_norms_scale_and_do_not_turn(norm):
    rewards, groups = rng(6).random((16, 1, 3)), np.repeat([0, 1], 8)
    plain = advantages("vector_max_at_k", rewards, groups, norm=Norm.NONE)
    scaled = advantages("vector_max_at_k", rewards, groups, norm=norm)
    assert (np.sign(plain) == np.sign(scaled)).all()
    ratio = scaled / plain
    assert np.allclose(ratio[:8], ratio[0])
    if norm is Norm.GROUP_STD:
        assert scaled[:8].std() == pytest.approx(1.0)


def test_the_credit_matrix_counts_every_subset():
    assert comb(23, 7) * 24 > 1e6  # too many subsets to enumerate
    rewards = rng(0).random((24, 1, 1))
    got = advantages("max_at_k", rewards, [0] * 24, kappa=3, norm=Norm.NONE)
    expected = [brute_credit(rewards[:, 0, 0], i, 3) for i in range(24)]
    assert np.allclose(got, expected)


GOOD = np.full((4, 1, 2), 0.5)


@pytest.mark.parametrize(
    ("rewards", "groups", "config", "words"),
    [
        (np.full((4, 1, 2), np.nan), [0] * 4, {}, "a reward is nan"),
        (GOOD * 3, [0] * 4, {}, r"is 1.5: expected a number in \[0, 1\]"),
        (GOOD - 1, [0] * 4, {}, "is -0.5"),
        (GOOD, [0] * 4, {"kappa": 4}, "kappa = 4 in a group of 4 answers: expected at most 3"),
        (GOOD, [0, 0, 0, 1], {}, "kappa = 1 in a group of 1 answers"),
        (np.zeros((4, 2, 2)), [0] * 4, {}, "rollouts have 2 answers: this estimator requires one"),
    ],
)
def test_invalid_input_is_reported(rewards, groups, config, words):
    with pytest.raises(InvalidInputError, match=words):
        advantages("vector_max_at_k", rewards, groups, **config)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_empty_batch_is_reported(name):
    with pytest.raises(InvalidInputError, match=r"the shape \(0, 1, 2\)"):
        advantages(name, GOOD[:0], [])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"draws": 0}, "draws"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": np.inf}, "alpha"),
        ({"kappa": 0}, "kappa"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"weights": (np.nan, 1.0)}, "weights"),
        ({"weights": (1.0, np.nan)}, "weights"),
        ({"weights": (np.inf, 1.0)}, "weights"),
        ({"weights": (2.0, -1.0)}, "weights.1\n"),
        ({"weights": (0.0, 0.0)}, "not all 0"),
        ({"weights": ()}, "not all 0"),
    ],
)
def test_invalid_configurations_are_reported(config, words):
    with pytest.raises((InvalidInputError, ValidationError), match=words):
        EstimatorConfig(**config)


def test_weights_must_fit():
    with pytest.raises(InvalidInputError, match="3 weights for 2 rewards"):
        advantages("grpo", GOOD, [0] * 4, weights=(1.0, 0.0, 0.0))


def test_the_defaults_are_the_papers():
    config = EstimatorConfig()
    assert (config.draws, config.alpha, config.weights) == (100, 1.0, None)
    rewards, groups = rng(0).random((16, 3, 2)), np.repeat([0, 1], 8)
    with_default = ESTIMATORS["vpo"](rewards, groups, rng=rng(1))
    assert np.array_equal(with_default, advantages("vpo", rewards, groups, seed=1))
