"""The order of candidates, and how far a vector is from a rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.ranking import Ranking
from speciate.domain.reward import RewardSpace
from speciate.domain.rule import Shortfall, parse_rule
from speciate.domain.target import Target

SIZE = Objective(name="size", direction=Direction.MINIMIZE, range=(16, 36))
DEPTH = Objective(name="depth", direction=Direction.MINIMIZE, range=(4, 16))
UNSORTED = Objective(name="unsorted", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT, range=(0, 64))
TARGETS = (
    Target(name="sorts", rule="unsorted <= 0"),
    Target(name="bitonic", rule="unsorted <= 0 and size <= 24", unlock=True),
    Target(name="optimal", rule="unsorted <= 0 and size <= 19 and depth <= 6"),
)


def ranking(*objectives: Objective, weights: tuple[float, ...] | None = None) -> Ranking:
    return Ranking(RewardSpace(objectives), TARGETS, weights)


NETWORKS = ranking(SIZE, DEPTH, UNSORTED)


def merit(of: Ranking, *rewards: float) -> tuple[float, ...]:
    met = sum(1 << i for i, rule in enumerate(of.rules) if rule.holds(rewards))
    return of.merit(rewards, met)


def test_a_small_network_that_does_not_sort_is_never_best() -> None:
    order = [(14, 4, 9), (14, 4, 2), (30, 9, 0), (28, 9, 0), (24, 9, 0), (22, 9, 0), (19, 7, 0), (20, 6, 0), (19, 6, 0)]
    ranks = [merit(NETWORKS, *rewards) for rewards in order]
    # (19, 7) and (20, 6) meet the same targets; a step is a larger part of its range than a comparator.
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize("value", [2.635983084914411, -73412.25, 0.1])
def test_differences_by_rounding_rank_nothing(value: float) -> None:
    open_ = Objective(name="open", range=(0, 2.64))
    target = Target(name="far", rule="open >= 3", unlock=True)
    for space in (RewardSpace((open_,)), RewardSpace((open_, SIZE))):
        of = Ranking(space, (target,), None)
        rewards = [(value + step * abs(value), 20)[: len(space.objectives)] for step in (0.0, 1e-15, 1e-11)]
        same, rounding, better = sorted(of.merits(rewards, [0, 0, 0]))
        assert same == rounding < better
    assert of.advantage(better, same) == "it is nearer to target far"
    assert of.advantage(same, rounding) == "it was the first with these rewards"


def test_meeting_the_unlock_target_ranks_before_any_number_of_others() -> None:
    of = Ranking(
        RewardSpace((SIZE, DEPTH)),
        (
            TARGETS[0].model_copy(update={"rule": "depth <= 9"}),
            Target(name="small", rule="size <= 20", unlock=True),
            Target(name="flat", rule="depth <= 6"),
        ),
        None,
    )
    assert merit(of, 20, 12) > merit(of, 21, 6)


def test_a_refutation_names_what_the_repeats_measured() -> None:
    told = NETWORKS.refutation(2, (19, 6, 0), [(20.5, 6, 0)])
    assert told == "first evaluation 19, repeat 20.5: not confirmed"
    both = NETWORKS.refutation(2, (19, 6, 0), [(19, 6, 0), (20, 7, 0), "timeout (wall_clock)"])
    assert both == (
        "first evaluation size 19 and depth 6, repeats size 19 and depth 6; size 20 and depth 7; timeout (wall_clock):"
        " not confirmed"
    )
    near = NETWORKS.refutation(1, (23.999999, 6, 0), [(24.000001, 6, 0)])
    assert near == "first evaluation 23.999999, repeat 24.000001: not confirmed"
    hidden = NETWORKS.refutation(2, (19, 6, 0), [(20, 6, 0)], hidden=["size"])
    assert hidden == "first evaluation met it, repeat missed it: not confirmed"


def test_weights_decide_among_candidates_that_meet_the_same_targets() -> None:
    weighted = ranking(SIZE, DEPTH, UNSORTED, weights=(0.0, 1.0))
    assert merit(weighted, 30, 5, 0) > merit(weighted, 26, 9, 0)
    assert merit(weighted, 24, 15, 0) > merit(weighted, 26, 5, 0)


def test_a_dominated_candidate_never_ranks_above_the_one_that_dominates_it() -> None:
    assert merit(NETWORKS, 19, 5, 0) > merit(NETWORKS, 19, 6, 0)
    assert merit(NETWORKS, 18, 6, 0) > merit(NETWORKS, 19, 6, 0)


@pytest.mark.parametrize(
    ("rule", "rewards", "missing"),
    [
        ("a >= 5", (4.0, 0.0), (0.1,)),
        ("a >= 5 and b <= 0", (4.0, 1.0), (0.1, 0.5)),
        ("a >= 5 or b <= 0", (4.0, 1.0), (0.1,)),
        ("not (a < 5 or b > 0)", (4.0, 1.0), (0.1, 0.5)),
        ("a > 5", (5.0, 0.0), (1e-9,)),
        ("a != 5", (5.0, 0.0), (1e-9,)),
        ("a == 5", (7.0, 0.0), (0.2,)),
        ("a >= 5", (5.0, 0.0), ()),
    ],
)
def test_shortfalls_are_in_units_of_the_ranges(
    rule: str, rewards: tuple[float, ...], missing: tuple[float, ...]
) -> None:
    found = parse_rule(rule, ["a", "b"]).shortfalls(rewards, (10.0, 2.0))
    assert [each.size for each in found] == pytest.approx(missing)


def test_what_is_missing_is_text_for_people() -> None:
    rewards = (26.0, 6.0, 3.0)
    assert [str(each) for each in NETWORKS.missing(2, rewards)] == [
        "unsorted must be <= 0, is 3",
        "size must be <= 19, is 26",
    ]
    assert [str(each) for each in NETWORKS.violations(rewards)] == ["unsorted must be <= 0, is 3"]
    for limit, value, shown in (
        (1234567, 1234569, "must be <= 1234567, is 1234569"),
        (2.6359831, 2.6359832, "must be <= 2.6359831, is 2.6359832"),
    ):
        assert str(Shortfall("s", value, "<=", limit, 1.0)).endswith(shown)
    assert NETWORKS.violations((26.0, 6.0, 0.0)) == ()
    assert NETWORKS.missing(0, (26.0, 6.0, 0.0)) == ()


@given(st.lists(st.tuples(*[st.floats(-100, 100)] * 3), min_size=1))
def test_violations_agree_with_the_reward_space(vectors: list[tuple[float, float, float]]) -> None:
    total = [sum(each.size for each in NETWORKS.violations(rewards)) for rewards in vectors]
    assert total == pytest.approx(NETWORKS.space.violation(vectors).tolist())


def test_the_nearest_candidate_lacks_least_for_the_unlock_and_the_constraints() -> None:
    assert NETWORKS.nearest([(14, 4, 20), (25, 9, 2), (40, 9, 1), (25, 9, 2)]) == 1


COMPARISON = st.builds(
    "{} {} {}".format, st.sampled_from("ab"), st.sampled_from([">=", "<=", ">", "<", "==", "!="]), st.integers(-2, 2)
)
RULES = st.recursive(
    COMPARISON,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not {}".format, inner),
    ),
    max_leaves=8,
)


@given(RULES, st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
def test_nothing_is_missing_exactly_if_the_rule_holds(text: str, rewards: tuple[int, int]) -> None:
    rule = parse_rule(text, ["a", "b"])
    missing = rule.shortfalls(rewards, (1.0, 3.0))
    assert rule.holds(rewards) == (not missing)
    assert all(each.size > 0 for each in missing)
    both = rule.distances(np.array([rewards, rewards], dtype=np.float64), (1.0, 3.0))
    assert both.tolist() == pytest.approx([sum(each.size for each in missing)] * 2)
    assert rule.holds(rewards) == eval(text, {"a": rewards[0], "b": rewards[1]})


@pytest.mark.parametrize(
    "of",
    [
        NETWORKS,
        ranking(SIZE, DEPTH, UNSORTED, weights=(0.3, 0.7)),
        Ranking(RewardSpace((SIZE, UNSORTED)), TARGETS[:2], None),
    ],
)
def test_ranks_are_the_same_for_columns_and_one_by_one(of: Ranking) -> None:
    rng = np.random.default_rng(0)
    rewards = np.stack([rng.integers(18, 30, 300), rng.integers(5, 9, 300), rng.integers(0, 2, 300)], axis=1)
    rewards = rewards[:, [objective in of.space.objectives for objective in (SIZE, DEPTH, UNSORTED)]].astype(float)
    met = [sum(1 << i for i, rule in enumerate(of.rules[:2]) if rule.holds(row)) for row in rewards.tolist()]
    assert of.merits(rewards.tolist(), met) == list(map(of.merit, rewards.tolist(), met))


def test_residuals_far_below_their_range_rank() -> None:
    residual = Objective(name="residual", direction=Direction.MINIMIZE, range=(0, 1))
    space, targets = RewardSpace((residual,)), (Target(name="zero", rule="residual <= 0", unlock=True),)
    for weights in (None, (1.0,)):
        of = Ranking(space, targets, weights)
        assert merit(of, 2e-20) > merit(of, 5e-17) > merit(of, 0.5)
