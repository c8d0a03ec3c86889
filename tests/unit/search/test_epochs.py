"""Resets of weak islands: replaced elites, founders, saved records and rejected late children."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.search.epochs import Resets, diverse_elites, epoch_of, ranked, strength
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Strategy
from tests.support.population import ListView, evaluated, vector_problem

PROBLEM = vector_problem(2)


def islands(**options: object) -> Strategy:
    given = {"islands": 3, "migration_interval": 0, "reset_interval": 2, "resets": 1, "founders": 2, **options}
    return build_strategy("islands_map_elites", given)


def grown(strategy: Strategy) -> ListView:
    """Return a view with a strong island 0, a medium island 1, and a weak island 2 with one record."""
    view = ListView(PROBLEM)
    for number, (island, point) in enumerate(
        [(0, (0.9, 0.2)), (0, (0.2, 0.9)), (0, (0.6, 0.6)), (1, (0.5, 0.5)), (2, (0.92, 0.0)), (2, (0.1, 0.1))], start=2
    ):
        view.grant(strategy.place(view, [evaluated(number, island, "x = 0\n", point)]))
    return view


def test_a_fitness_encodes_its_epoch_and_increases_with_the_score() -> None:
    scores = [-1e100, -2.0, 0.0, 0.5, 0.5 + 1e-9, 1.0, 1e100]
    fitness = [ranked(score, 7) for score in scores]
    assert fitness == sorted(fitness)
    assert len(set(fitness)) == len(scores)
    assert {int(value) for value in fitness} == {7}
    assert ranked(1e300, 7) < ranked(-1e300, 8)


def test_strength_is_the_mean_best_over_all_weightings() -> None:
    view = grown(islands())
    order = [strength(PROBLEM, view.elites(island)) for island in (0, 1, 2)]
    assert order[0] > order[1]
    assert order[0] > order[2]
    assert order[1] == pytest.approx(0.5)


def test_founders_lie_far_apart() -> None:
    view = grown(islands())
    founders = diverse_elites(view, view.elites(0), np.array([0.0, 1.0]), 2)
    assert founders.tolist() == [3, 2]
    assert diverse_elites(view, view.elites(1), np.array([0.0, 1.0]), 5).tolist() == [5]


def test_a_reset_replaces_the_weakest_island_and_the_strongest_inherits_its_record() -> None:
    strategy = islands()
    view = grown(strategy)
    view.batch = 6
    moved = strategy.maintain(view, np.random.default_rng(0))
    assert {p.number for p in moved if p.island == 0} == {6}
    assert {p.number for p in moved if p.island == 2} <= {2, 3, 4, 6}
    assert {p.island for p in moved} == {0, 2}
    view.grant(moved)
    assert epoch_of(view.elites(2)) == 1
    assert [epoch_of(view.elites(island)) for island in (0, 1)] == [0, 0]
    view.batch = 8
    parents = {strategy.select(view, np.random.default_rng(seed)).parents[0] for seed in range(60)}
    assert 7 not in parents
    assert parents <= {2, 3, 4, 6}


def test_a_reset_is_done_once_in_an_epoch_and_not_in_the_first() -> None:
    strategy = islands()
    view = grown(strategy)
    rng = np.random.default_rng(0)
    for view.batch in range(6):
        assert strategy.maintain(view, rng) == ()
    resets = []
    for view.batch in range(6, 19):
        moved = strategy.maintain(view, rng)
        view.grant(moved)
        resets += [view.batch] * bool(moved)
    assert resets == [6, 12, 18]


def test_a_late_child_of_a_reset_island_is_rejected() -> None:
    strategy = islands()
    view = grown(strategy)
    view.batch = 6
    view.grant(strategy.maintain(view, np.random.default_rng(0)))
    before = view.snapshot()
    late = evaluated(90, 2, "x = 0\n", (0.99, 0.99))
    view.batch = 5
    assert strategy.place(view, [late]) == ()
    view.batch = 7
    view.grant(strategy.place(view, [late]))
    assert 90 in view.numbers()
    assert view.snapshot() != before


def test_a_child_outranks_dead_elites() -> None:
    strategy = islands(features=[])
    view = grown(strategy)
    view.grant(strategy.place(view, [evaluated(80, 2, "x = 0\n", (5.0, 5.0))]))
    view.grant(strategy.place(view, [evaluated(81, 0, "x = 0\n", (9.0, 9.0))]))
    view.batch = 6
    view.grant(strategy.maintain(view, np.random.default_rng(0)))
    weak = int(np.argmax([epoch_of(view.elites(island)) for island in range(3)]))
    assert weak == 1
    view.grant(strategy.place(view, [evaluated(90, weak, "x = 0\n", (9.5, 9.5))]))
    assert set(view.elites(weak).numbers.tolist()) == {90}


def test_while_a_reset_is_due_parents_come_from_the_strongest_island_alone() -> None:
    strategy = islands()
    view = grown(strategy)
    for view.batch in (6, 7, 8):
        selection = strategy.select(view, np.random.default_rng(view.batch))
        assert selection.island == 0
        assert set(selection.parents) <= {2, 3, 4}
    view.grant(strategy.maintain(view, np.random.default_rng(0)))
    assert strategy.select(view, np.random.default_rng(0)).island == 2


def test_a_lone_island_and_one_without_an_interval_are_never_reset() -> None:
    assert not Resets(islands=1, interval=5, count=1, founders=1).enabled
    assert not Resets(islands=4, interval=0, count=1, founders=1).enabled
    assert Resets(islands=4, interval=5, count=1, founders=1).epoch(40) == 2


def test_the_archive_does_not_grow_with_resets() -> None:
    strategy = islands(reset_interval=1, resets=2)
    view = ListView(PROBLEM)
    sizes = []
    for view.batch in range(120):
        rng = np.random.default_rng(view.batch)
        view.grant(strategy.maintain(view, rng))
        island = strategy.select(view, rng).island
        child = evaluated(2 + view.batch, island, "x = 0\n", tuple(rng.random(2).tolist()))
        view.grant(strategy.place(view, [child]))
        sizes.append(view.size())
    assert max(epoch_of(view.elites(island)) for island in range(3)) > 30
    assert sizes[-1] == sizes[30] == 3 * (3 + 1)
