"""Adaptive evolution: operators by their gains, parents, and batches that grow with the run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.search.operators import Operator, draw_operator, gains_of
from speciate.search.strategies import build_strategy
from tests.support.population import ListView, evaluated, raw_rewards, vector_problem

ALL = {PolicyRole.PROPOSE: 0.05, PolicyRole.MUTATE: 0.5, PolicyRole.POLISH: 0.45}


def population(*points: tuple[float, ...], k: int = 1) -> ListView:
    """Return a view whose archive has seen candidates 1, 2, … with these normalised rewards."""
    view = ListView(vector_problem(k))
    view.operators = dict(ALL)
    strategy = build_strategy("adaptive_evolution", {})
    for number, point in enumerate(points, start=1):
        view.grant(strategy.place(view, [evaluated(number, 0, f"x = {number}\n", raw_rewards(view.problem, point))]))
    return view


def steps(view: ListView, role: PolicyRole, first: int, *values: float | None) -> None:
    """Add candidates of an operator to the latest ones."""
    for number, value in enumerate(values, start=first):
        rewards = None if value is None else raw_rewards(view.problem, (value,))
        view.recent.insert(0, Individual(number, "", rewards, role=role))


def chosen(view: ListView, draws: int = 2000) -> dict[str, float]:
    rng, shares = np.random.default_rng(0), {Operator(role.value): share for role, share in view.operators.items()}
    drawn = Counter(draw_operator(view, view.elites(0), shares, rng) for _ in range(draws))
    return {operator.value: count / draws for operator, count in drawn.items()}


def test_operators_have_their_shares_before_anything_is_known() -> None:
    assert chosen(population((0.5,))) == pytest.approx({role.value: share for role, share in ALL.items()}, abs=0.04)


def test_gains_are_what_each_candidate_added_to_the_best_before_it() -> None:
    view = population((0.5,))
    steps(view, PolicyRole.MUTATE, 2, 0.4, 0.6, None)
    steps(view, PolicyRole.POLISH, 5, 0.6, 0.9)
    gains = gains_of(view, view.elites(0))
    assert gains[Operator.MUTATE] == pytest.approx([0.0, 0.1, 0.0])
    assert gains[Operator.POLISH] == pytest.approx([0.0, 0.3])


def test_the_operator_that_gains_gets_most_and_none_gets_nothing() -> None:
    view = population((0.1,))
    for i in range(20):
        steps(view, PolicyRole.POLISH, 2 + 2 * i, 0.1 + 0.02 * (i + 1))
        steps(view, PolicyRole.MUTATE, 3 + 2 * i, 0.05)
    shares = chosen(view)
    assert shares[Operator.POLISH] > 0.6
    assert shares[Operator.MUTATE] > 0.1
    assert shares[Operator.PROPOSE] > 0.01


def test_the_best_is_polished_and_mostly_changed() -> None:
    view, strategy = population((0.2,), (0.8,), (0.5,)), build_strategy("adaptive_evolution", {"crossover": 0})
    rng = np.random.default_rng(1)
    selections = [strategy.select(view, rng) for _ in range(1000)]
    parents = {role: Counter(s.parents for s in selections if s.role is role) for role in ALL}
    assert set(parents[PolicyRole.POLISH]) == {(2,)}
    changes = parents[PolicyRole.MUTATE]
    assert 0.8 < changes[2,] / changes.total() < 0.97
    assert set(parents[PolicyRole.PROPOSE]) == {()}


def test_others_are_always_shown_and_recombined_where_that_gains() -> None:
    view = population(*((0.1 * n,) for n in range(1, 9)))
    view.operators = {PolicyRole.MUTATE: 1.0}
    strategy, rng = build_strategy("adaptive_evolution", {}), np.random.default_rng(4)

    def alone() -> int:
        selections = [strategy.select(view, rng) for _ in range(400)]
        assert all(len(set(s.parents + s.inspirations)) == len(s.parents) + 2 for s in selections)
        return sum(len(s.parents) == 1 for s in selections)

    assert 250 < alone() < 310
    for n in range(20):
        steps(view, PolicyRole.MUTATE, 100 + 2 * n, 0.1)
        gained = raw_rewards(view.problem, (0.8 + 0.005 * (n + 1),))
        view.recent.insert(0, Individual(101 + 2 * n, "", gained, parents=(1, 2)))
    assert alone() < 200


def test_without_polish_every_selection_is_for_a_policy() -> None:
    view, strategy = population((0.2,), (0.8,)), build_strategy("adaptive_evolution", {"polish": False})
    rng = np.random.default_rng(2)
    assert {strategy.select(view, rng).role for _ in range(300)} == {PolicyRole.MUTATE, PolicyRole.PROPOSE}


def test_several_objectives_also_get_parents_for_poorly_served_weightings() -> None:
    view = population((0.9, 0.6), (0.1, 0.95), k=2)
    view.operators = {PolicyRole.MUTATE: 1.0}
    rng = np.random.default_rng(3)
    options = {"exploration": 0, "crossover": 0}
    covering = build_strategy("adaptive_evolution", {**options, "coverage": 1})
    assert {covering.select(view, rng).parents[0] for _ in range(200)} == {1, 2}
    even = build_strategy("adaptive_evolution", {**options, "coverage": 0})
    assert {even.select(view, rng).parents[0] for _ in range(200)} == {1}


@pytest.mark.parametrize(("evaluated_so_far", "answers"), [(0, 1), (1, 1), (60, 3), (240, 15), (10_000, 64)])
def test_answers_in_flight_grow_with_the_run(evaluated_so_far: int, answers: int) -> None:
    assert build_strategy("adaptive_evolution", {}).in_flight(64, evaluated_so_far) == answers


def test_differences_by_rounding_win_no_cell() -> None:
    view = population((2.635983084914411, 0.5), (0.5, 2.0), k=2)
    strategy = build_strategy("adaptive_evolution", {})
    points = ((2.6359830849144372, 0.5), (0.5, 2.0 - 1e-15), (2.6359830849544, 0.5))
    children = [evaluated(n, 0, f"x = {n}\n", raw_rewards(view.problem, point)) for n, point in enumerate(points, 9)]
    assert [bool(strategy.place(view, [child])) for child in children] == [False, False, True]
