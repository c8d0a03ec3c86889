"""Vector evolution: dominated novelty, poorly served weightings and complementary partners."""

from __future__ import annotations

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.search.dominated_novelty import complement, survivors
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Strategy
from tests.support.population import ListView, evaluated, vector_problem


def lone(**options: object) -> Strategy:
    given = {"scratch": 0, "min_elites": 1, "exploration": 0, "crossover": 0, "inspirations": 0, **options}
    return build_strategy("vector_evolution", given)


def grown(strategy: Strategy, points: list[tuple[float, ...]]) -> ListView:
    view = ListView(vector_problem(len(points[0])))
    for number, point in enumerate(points, start=2):
        view.grant(strategy.place(view, [evaluated(number, 0, "x = 0\n", point)]))
    return view


def slots(view: ListView) -> set[int]:
    table = view.elites(0)
    return {int(n) for n, cell in zip(table.numbers, table.cells, strict=True) if cell.startswith("@slot")}


def test_a_dominated_vector_is_removed_before_a_nondominated_one() -> None:
    points = np.array([[1.0, 0.0], [0.99, 0.01], [0.0, 1.0], [0.2, 0.0]])
    assert survivors(points, 3).tolist() == [True, True, True, False]


def test_the_dominated_vector_nearest_to_a_better_one_is_removed() -> None:
    points = np.array([[1.0, 1.0], [0.9, 0.9], [0.0, 0.0]])
    assert survivors(points, 2).tolist() == [True, False, True]


def test_the_most_crowded_nondominated_vector_is_removed() -> None:
    points = np.array([[1.0, 0.0], [0.5, 0.5], [0.45, 0.55], [0.0, 1.0]])
    alive = survivors(points, 3)
    assert alive[[0, 1, 3]].all()
    assert not alive[2]


def test_the_oldest_of_equal_vectors_survives() -> None:
    assert survivors(np.array([[0.5], [0.5], [0.5]]), 9).tolist() == [True, False, False]
    assert survivors(np.zeros((0, 3)), 4).tolist() == []
    assert survivors(np.eye(3), 0).tolist() == [False] * 3


def test_a_dominated_but_novel_member_survives_beside_the_records() -> None:
    strategy = lone(population=2)
    view = grown(strategy, [(1.0, 1.0), (0.9, 0.9), (0.0, 0.1)])
    assert slots(view) == {2, 4}
    assert slots(grown(lone(population=0), [(1.0, 1.0), (0.0, 0.1)])) == set()


def test_infeasible_members_lose_their_slots_to_feasible_ones() -> None:
    strategy, problem = lone(population=3), vector_problem(2, constrained=True)
    view = ListView(problem)
    rewards = {2: (1.0, 0.0, 0.1), 3: (0.0, 1.0, 0.1), 4: (0.7, 0.7, 0.1), 5: (0.8, 0.8, 0.0), 6: (0.79, 0.79, 0.0)}
    for number in (2, 3, 4):
        view.grant(strategy.place(view, [evaluated(number, 0, "x = 0\n", rewards[number])]))
    assert slots(view) == {2, 3, 4}
    for number in (5, 6):
        view.grant(strategy.place(view, [evaluated(number, 0, "x = 0\n", rewards[number])]))
    assert {5, 6} <= slots(view)
    view.grant(strategy.place(view, [evaluated(7, 0, "x = 0\n", (0.6, 0.6, 0.0))]))
    assert slots(view) == {5, 6, 7}


def test_a_late_newcomer_does_not_displace_a_newer_member() -> None:
    strategy = lone(population=1)
    view = grown(strategy, [(0.5, 0.5)])
    view.grant(strategy.place(view, [evaluated(50, 0, "x = 0\n", (0.6, 0.6))]))
    assert slots(view) == {50}
    view.grant(strategy.place(view, [evaluated(40, 0, "x = 0\n", (0.7, 0.7))]))
    assert slots(view) == {50}
    assert 40 in view.numbers()


def test_effort_goes_to_poorly_served_weightings() -> None:
    points = [(0.9, 0.1, 0.1), (0.1, 0.9, 0.1), (0.05, 0.05, 0.2)]

    def share(weightings: int) -> float:
        strategy = lone(focus=1.0, weightings=weightings)
        view = grown(strategy, points)
        parents = [strategy.select(view, np.random.default_rng(seed)).parents[0] for seed in range(600)]
        return parents.count(4) / len(parents)

    assert share(16) > 2 * share(1) > 0


def test_without_focus_parents_are_selected_by_lexicase() -> None:
    strategy = lone(focus=0.0)
    view = grown(strategy, [(1.0, 0.0), (0.0, 1.0), (0.6, 0.6), (0.5, 0.5)])
    parents = {strategy.select(view, np.random.default_rng(seed)).parents[0] for seed in range(200)}
    assert {2, 3} <= parents


def test_the_partner_is_strong_where_the_parent_is_weak() -> None:
    points = np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.5], [0.0, 0.7, 0.0], [0.0, 0.0, 0.9]])
    rng = np.random.default_rng(0)
    assert complement(points, 0, np.array([0.4, 0.4, 0.2]), rng) == 2
    assert complement(points, 0, np.array([0.1, 0.1, 0.8]), rng) == 3
    single = np.array([[0.9], [0.0], [0.8], [0.1], [0.7]])
    assert {complement(single, 0, np.ones(1), rng) for _ in range(60)} == {2, 4}
    strategy = lone(crossover=1.0)
    view = grown(strategy, [(0.9, 0.1), (0.1, 0.9)])
    assert {strategy.select(view, np.random.default_rng(seed)).parents for seed in range(60)} == {(2, 3), (3, 2)}


def test_it_proposes_more_with_few_elites() -> None:
    strategy = lone(scratch=0.25, min_elites=4)
    few, many = grown(strategy, [(0.5, 0.5)]), grown(strategy, [(i / 9, 1 - i / 9) for i in range(9)])

    def share(view: ListView) -> float:
        roles = [strategy.select(view, np.random.default_rng(seed)).role for seed in range(1000)]
        return roles.count(PolicyRole.PROPOSE) / len(roles)

    assert abs(share(few) - 0.75) < 0.05
    assert abs(share(many) - 0.25) < 0.05


def test_a_candidate_equal_to_an_elite_takes_no_slot() -> None:
    strategy = lone(population=4)
    view = ListView(vector_problem(2))
    view.grant([p for p in strategy.place(view, [evaluated(2, 0, "x = 0\n", (0.5, 0.5))]) if p.cell[0] != "@"])
    assert slots(view) == set()
    view.grant(strategy.place(view, [evaluated(3, 0, "y = 0\n", (0.5, 0.5)), evaluated(4, 0, "z = 0\n", (0.4, 0.4))]))
    assert slots(view) == {4}
