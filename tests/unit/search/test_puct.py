"""PUCT: the best child counts, visits of descendants too, and a batch takes one parent of a lineage."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.reward import RewardSpace
from speciate.search.archive import ParentPool, pool_of
from speciate.search.puct import puct, puct_row
from speciate.search.strategies import build_strategy
from speciate.search.strategy import EliteTable, Family, Placement
from tests.support.population import ListView, raw_rewards, vector_problem

PROBLEM = vector_problem(1)
ONE = np.ones(1)


def family(*rows: tuple[int, int, float | None], group: int = 1) -> Family:
    return Family.of([(n, p, None if v is None else (v,)) for n, p, v in rows], 1, group)


def selected(pool: dict[int, float], of: Family, *, taken: tuple[int, ...] = (), c: float = 0.0) -> int:
    numbers = np.array(sorted(pool))
    points = np.array([[pool[number]] for number in numbers.tolist()])
    row = puct_row(ParentPool(numbers, points, PROBLEM.space), of, ONE, taken, c, np.random.default_rng(0))
    return int(numbers[row])


def test_the_score_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(1, 7))
        values, best, visits = rng.integers(0, 4, n) / 4, rng.random(n), rng.integers(0, 5, n).astype(float)
        found = puct(best, values, visits, 1.5)
        spread = values.max() - values.min() or 1.0
        # Equal values share the mean of their places.
        rank = [np.mean([1 + k for k, v in enumerate(sorted(values)) if v == value]) for value in values]
        for i in range(n):
            bonus = 1.5 * spread * rank[i] / sum(rank) * (1 + visits.sum()) ** 0.5 / (1 + visits[i])
            assert found[i] == pytest.approx(best[i] + bonus)


def test_the_best_child_counts_and_not_the_program() -> None:
    of = family((1, 0, 0.9), (2, 0, 0.5), (3, 1, 0.6), (4, 2, 0.8), (5, 2, None))
    assert selected({1: 0.9, 2: 0.5}, of) == 2
    # Before its first scored child a program counts by itself.
    assert selected({1: 0.9, 2: 0.5}, family((1, 0, 0.9), (2, 0, 0.5), (3, 1, None))) == 1


def test_infeasible_children_of_a_feasible_program_are_visits_only() -> None:
    space = vector_problem(1, constrained=True).space
    children = [(3, 1, (0.95, 0.1)), (4, 2, (0.6, 0.0))]
    of = Family.of([(1, 0, (0.9, 0.0)), (2, 0, (0.5, 0.0)), *children], 2, 1)

    def chosen(c: float) -> int:
        pool = ParentPool(np.array([1, 2]), np.array([[0.9], [0.5]]), space)
        return puct_row(pool, of, ONE, (), c, np.random.default_rng(0))

    assert chosen(0.0) == chosen(1.0) == 0
    # While every candidate is infeasible, the child that violates least counts.
    outside = Family.of([(1, 0, (0.9, 0.5)), (2, 0, (0.5, 0.6)), (3, 1, (0.9, 0.9)), (4, 2, (0.1, 0.2))], 2, 1)
    pool = ParentPool(np.array([1, 2]), space.normalise([(0.9, 0.5), (0.5, 0.6)]), space)
    assert puct_row(pool, outside, ONE, (), 0.0, np.random.default_rng(0)) == 1


def test_children_are_valued_on_the_widened_scale_of_the_elites() -> None:
    (objective,) = PROBLEM.objectives
    space = RewardSpace((objective.model_copy(update={"range": (0.0, 2.0), "estimated": True}),))
    pool = pool_of(space, EliteTable.of([Placement(1, 0, "a", 1.0, (4.0,)), Placement(2, 0, "b", 1.0, (20.0,))], 1))
    of = family((1, 0, 4.0), (2, 0, 20.0), (3, 1, 4.1))
    assert pool.numbers[puct_row(pool, of, ONE, (), 0.0, np.random.default_rng(0))] == 2


def test_failures_and_descendants_are_visits() -> None:
    pool = {1: 0.5, 2: 0.5}
    assert selected(pool, family((1, 0, 0.5), (2, 0, 0.5), (3, 1, None)), c=1.0) == 2
    grown = family((1, 0, 0.5), (2, 0, 0.5), (3, 1, 0.5), (4, 2, 0.5), (5, 3, 0.5), (6, 3, 0.5))
    assert selected(pool, grown, c=1.0) == 2


def test_a_batch_takes_one_parent_of_a_lineage() -> None:
    of = family((1, 0, 0.1), (2, 1, 0.8), (3, 2, 0.9), (4, 0, 0.2), (5, 1, 0.7))
    pool = {1: 0.1, 2: 0.8, 3: 0.9, 4: 0.2, 5: 0.7}
    assert selected(pool, of, taken=(3,)) == 5  # a sibling of its parent is not in its line
    assert selected(pool, of, taken=(3, 5)) == 4
    assert selected(pool, of, taken=(1,)) == 4  # all that descend from it are taken too
    assert selected({1: 0.1, 3: 0.9}, of, taken=(1,)) in {1, 3}  # otherwise nothing could be selected


def test_the_strategy_selects_by_it_and_without_it_does_not_read_the_family() -> None:
    options = {"islands": 1, "exploration": 0, "crossover": 0, "puct_constant": 0}
    view = ListView(PROBLEM)
    view.grant([Placement(n, 0, f"c{n}", v, raw_rewards(PROBLEM, [v])) for n, v in ((1, 0.9), (2, 0.5))])
    view.born = [(1, 0, (0.9,)), (2, 0, (0.5,)), (3, 1, (0.6,)), (4, 2, (0.8,))]
    strategy = build_strategy("islands_map_elites", {**options, "selection": "puct"})
    assert strategy.select(view, np.random.default_rng(0)).parents == (2,)
    view.taken = [2]
    assert strategy.select(view, np.random.default_rng(0)).parents == (1,)
    view.family = lambda: pytest.fail("the family was read")  # type: ignore[method-assign]
    build_strategy("islands_map_elites", {**options, "selection": "lexicase"}).select(view, np.random.default_rng(0))
