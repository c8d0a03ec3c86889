"""Properties of the allocation of a campaign's evaluations, for arbitrary results of its slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speciate.search.allocation import Decision, Slice, adaptive, chance, fixed

NEVER = 10**9
Next = Callable[[list[Slice]], Decision | None]

# For every problem the evaluations at which it reaches its targets, the unlock last; NEVER for one it cannot reach.
worlds = st.lists(
    st.lists(st.integers(1, 150) | st.just(NEVER), min_size=1, max_size=3).map(sorted), min_size=1, max_size=6
)


def play(
    decide: Next, world: list[list[int]], *, order: np.random.Generator | None = None, parallel: int = 1
) -> list[Slice]:
    """Decide and spend until nothing is left; slices end in random order with ``order``, else in decision order."""
    history: list[Slice] = []
    spent = [0] * len(world)
    while True:
        while (decision := decide(history)) is not None:
            history.append(Slice(decision.problem, decision.evaluations))
        open_ones = [i for i, each in enumerate(history) if each.spent is None]
        assert len(open_ones) <= parallel
        if not open_ones:
            return history
        i = int(order.choice(open_ones)) if order is not None else open_ones[0]
        problem, evaluations = history[i].problem, history[i].evaluations
        used = min(evaluations, world[problem][-1] - spent[problem])
        spent[problem] += used
        latest = max([at for at in world[problem] if at <= spent[problem]], default=0)
        history[i] = Slice(
            problem, evaluations, used, spent[problem] - latest, closed=spent[problem] == world[problem][-1]
        )


def totals(history: list[Slice]) -> Counter[int]:
    spent: Counter[int] = Counter()
    for each in history:
        spent[each.problem] += each.spent or 0
    return spent


def rule(world: list[list[int]], evaluations: int, *, size: int = 10, parallel: int = 1, seed: int = 0) -> Next:
    return partial(adaptive, problems=len(world), evaluations=evaluations, size=size, parallel=parallel, seed=seed)


@settings(max_examples=60)
@given(worlds, st.integers(1, 400), st.integers(1, 40), st.integers(1, 5), st.integers(0, 3))
def test_the_budget_is_spent_to_the_last_evaluation_or_everything_is_solved(
    world: list[list[int]], evaluations: int, size: int, parallel: int, seed: int
) -> None:
    history = play(rule(world, evaluations, size=size, parallel=parallel, seed=seed), world, parallel=parallel)
    spent = totals(history)
    solved = all(spent[i] == targets[-1] for i, targets in enumerate(world))
    assert sum(spent.values()) == evaluations or (solved and sum(spent.values()) < evaluations)


@settings(max_examples=60)
@given(worlds, st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_the_order_in_which_slices_end_changes_nothing(world: list[list[int]], parallel: int, seed: int) -> None:
    decide = rule(world, 400, parallel=parallel)
    histories = [play(decide, world, order=np.random.default_rng(seed + i), parallel=parallel) for i in range(3)]
    assert histories[0] == histories[1] == histories[2]


@settings(max_examples=60)
@given(worlds, st.integers(1, 5))
def test_a_solved_problem_gets_no_more_evaluations(world: list[list[int]], parallel: int) -> None:
    history = play(rule(world, 400, parallel=parallel), world, parallel=parallel)
    closed = {each.problem: i for i, each in enumerate(history) if each.closed}
    for i, each in enumerate(history):
        assert i <= closed.get(each.problem, i)
        assert each.spent


@settings(max_examples=60)
@given(worlds, st.integers(1, 5), st.integers(0, 9))
def test_no_problem_starves(world: list[list[int]], parallel: int, seed: int) -> None:
    # While a problem waits with a gap g, another is given evaluations until its own gap is no shorter: after each of
    # its targets at most g and a slice, and one slice more that was decided before its last one ended.
    size, evaluations = 10, 10 * len(world) * 8
    history = play(rule(world, evaluations, size=size, parallel=parallel, seed=seed), world, parallel=parallel)
    for i in range(len(world)):
        mine = [at for at, each in enumerate(history) if each.problem == i]
        assert mine
        if history[mine[-1]].closed:
            continue
        for at, following in zip(mine, [*mine[1:], len(history)], strict=True):
            given = totals(history[at + 1 : following])
            for other, targets in enumerate(world):
                assert given[other] <= (len(targets) + 1) * (history[at].gap + 2 * size)


def test_evaluations_go_to_the_shortest_time_without_a_new_target() -> None:
    history = [Slice(0, 10, 10, gap=10), Slice(1, 10, 10, gap=3), Slice(2, 10, 4, gap=0, closed=True)]
    decision = adaptive(history, problems=3, evaluations=100, size=10, parallel=1, seed=0)
    assert decision == Decision(1, 10, 3, chance(3))
    assert chance(3) == pytest.approx(1 / 5)


def test_the_last_slice_is_the_remainder() -> None:
    history = [Slice(0, 10, 10, gap=10), Slice(1, 10, 2, closed=True), Slice(0, 10)]
    decision = adaptive(history, problems=3, evaluations=29, size=10, parallel=2, seed=0)
    assert decision is not None
    assert (decision.problem, decision.evaluations) == (2, 7)


def test_the_last_open_problem_gets_the_rest() -> None:
    history = [Slice(0, 10, 2, closed=True), Slice(1, 10, 10, gap=10), Slice(2, 10)]
    assert adaptive(history, problems=3, evaluations=500, size=10, parallel=1, seed=0) is None
    history[2] = Slice(2, 10, 3, closed=True)
    decision = adaptive(history, problems=3, evaluations=500, size=10, parallel=1, seed=0)
    assert decision == Decision(1, 485, 10, chance(10))


def test_the_seed_only_orders_equals() -> None:
    world = [[NEVER]] * 6
    orders = {tuple(each.problem for each in play(rule(world, 120, seed=seed), world)) for seed in range(20)}
    assert len(orders) > 10
    for order in orders:
        assert order[:6] == order[6:12]
        assert sorted(order[:6]) == list(range(6))


@settings(max_examples=60)
@given(worlds, st.integers(1, 5), st.integers(1, 400))
def test_fixed_shares_are_equal_to_one_evaluation(world: list[list[int]], parallel: int, evaluations: int) -> None:
    evaluations = max(evaluations, len(world))
    decide = partial(fixed, problems=len(world), evaluations=evaluations, parallel=parallel)
    history = play(decide, world, parallel=parallel)
    shares = [each.evaluations for each in history]
    assert [each.problem for each in history] == list(range(len(world)))
    assert sum(shares) == evaluations
    assert max(shares) - min(shares) <= 1
