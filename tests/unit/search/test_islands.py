"""Islands, migration around the ring, and ``islands_map_elites``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import PolicyRole
from speciate.search.islands import island_weights, sends_migrants
from speciate.search.strategies import STRATEGIES, build_strategy
from tests.support.population import ListView, evaluated, raw_rewards, synthetic_batch, vector_problem


def test_every_island_sends_at_its_interval() -> None:
    senders = [batch % 3 for batch in range(18) if sends_migrants(batch, 3, 2)]
    assert senders == [0, 1, 2, 0, 1, 2]
    assert not any(sends_migrants(batch, 1, 2) or sends_migrants(batch, 3, 0) for batch in range(50))


def test_island_weightings_are_distinct_and_stable() -> None:
    problem = vector_problem(4, weights={"r0": 1.0, "r2": 3.0})
    assert island_weights(problem, 5, 0).tolist() == [0.25, 0.0, 0.75, 0.0]
    drawn = [island_weights(problem, 5, island) for island in range(1, 9)]
    assert len({tuple(w.tolist()) for w in drawn}) == 8
    assert np.allclose([w.sum() for w in drawn], 1.0)
    assert island_weights(problem, 5, 1) is island_weights(problem, 5, 1)
    assert island_weights(problem, 6, 1).tolist() != island_weights(problem, 5, 1).tolist()
    assert island_weights(vector_problem(4), 2**63 - 1, 0).shape == (4,)


def test_problems_with_equal_run_seeds_have_different_weightings() -> None:
    problems = [vector_problem(4).model_copy(update={"title": title}) for title in ("one", "another", "one")]
    mine, theirs, again = (island_weights(problem, 5, 0).tolist() for problem in problems)
    assert mine == again != theirs


def test_migrants_enter_the_next_island_only_if_they_are_better() -> None:
    problem = vector_problem(3)
    strategy = build_strategy("islands_map_elites", {"islands": 3, "migration_interval": 1, "migrants": 8})
    view = ListView(problem)
    rng = np.random.default_rng(1)
    for island in range(3):
        view.grant(strategy.place(view, synthetic_batch(problem, 100 * (island + 1), 16, island, rng)))
    for batch, source, target in ((3, 0, 1), (4, 1, 2), (5, 2, 0)):
        view.batch = batch
        sent = set(view.elites(source).numbers.tolist())
        moved = strategy.maintain(view, rng)
        assert moved
        assert {p.island for p in moved} == {target}
        assert {p.number for p in moved} <= sent
        assert view.grant(moved) == len(moved)


def test_a_migrant_keeps_its_cell_and_is_ranked_by_its_new_island() -> None:
    problem = vector_problem(2)
    strategy = build_strategy("islands_map_elites", {"islands": 2, "migration_interval": 1})
    view = ListView(problem, batch=2)
    view.grant(strategy.place(view, [evaluated(9, 0, "x = 0\n", (0.3, 0.9))]))
    moved = {p.cell: p.fitness for p in strategy.maintain(view, np.random.default_rng(0))}
    assert moved.keys() == {"w0", "w1", "w2", "length:2,nesting:0"}
    assert moved["w2"] == pytest.approx(0.6)
    assert moved["length:2,nesting:0"] == pytest.approx(float(island_weights(problem, 0, 1) @ [0.3, 0.9]))


def test_a_specialist_survives_generalists_with_a_better_sum() -> None:
    problem = vector_problem(5)
    strategy = build_strategy("islands_map_elites", {"islands": 1})
    view = ListView(problem)
    view.grant(strategy.place(view, [evaluated(2, 0, "x = 0\n", (1.0, 0.0, 0.0, 0.0, 0.0))]))
    for number in range(3, 400):
        point = np.random.default_rng(number).uniform(0.7, 0.99, size=5).tolist()
        view.grant(strategy.place(view, [evaluated(number, 0, "x = 0\n", raw_rewards(problem, point))]))
    assert 2 in view.numbers()
    rng = np.random.default_rng(0)
    assert any(2 in strategy.select(view, rng).parents for _ in range(2000))


def test_programs_of_other_shape_do_not_compete() -> None:
    problem = vector_problem(1, seed_program="x" * 64)
    strategy = build_strategy("islands_map_elites", {"islands": 1})
    view = ListView(problem)
    long, short = evaluated(2, 0, "y" * 256, (0.1,)), evaluated(3, 0, "z" * 64, (0.9,))
    view.grant(strategy.place(view, [long, short]))
    assert view.numbers() == {2, 3}
    alone = build_strategy("islands_map_elites", {"islands": 1, "features": []})
    assert {p.number for p in alone.place(ListView(problem), [long, short])} == {3}


@pytest.mark.parametrize(("chance", "parents"), [(0.0, 1), (1.0, 2)])
def test_crossover_adds_a_second_parent(chance: float, parents: int) -> None:
    problem = vector_problem(4)
    strategy = build_strategy("islands_map_elites", {"islands": 1, "crossover": chance, "inspirations": 3})
    view = ListView(problem)
    view.grant(strategy.place(view, synthetic_batch(problem, 2, 32, 0, np.random.default_rng(0))))
    for seed in range(30):
        selection = strategy.select(view, np.random.default_rng(seed))
        assert len(set(selection.parents)) == parents
        assert len(selection.inspirations) == 3


@pytest.mark.parametrize(("share", "roles"), [(0.0, {"propose"}), (1.0, {"mutate"}), (0.5, {"propose", "mutate"})])
def test_an_empty_island_is_seeded_from_the_previous_one(share: float, roles: set[str]) -> None:
    problem = vector_problem(3)
    strategy = build_strategy("islands_map_elites", {"islands": 3, "seeding": share})
    view = ListView(problem, seed_number=None)
    rng = np.random.default_rng(0)
    assert strategy.select(view, rng).role is PolicyRole.PROPOSE  # the first island has no previous one
    view.grant(strategy.place(view, synthetic_batch(problem, 100, 16, 0, rng)))
    view.batch = 1
    begun = [strategy.select(view, rng) for _ in range(64)]
    assert {selection.island for selection in begun} == {1}
    assert {selection.role for selection in begun} == roles
    parents = {number for selection in begun for number in selection.parents}
    assert parents <= set(view.elites(0).numbers.tolist())
    view.batch = 2
    assert strategy.select(view, rng).role is PolicyRole.PROPOSE  # the island before is empty as well


def test_best_of_n_ignores_the_archive() -> None:
    strategy = build_strategy("best_of_n", {})
    view = ListView(vector_problem(2))
    view.grant(strategy.place(view, [evaluated(2, 0, "x", (1.0, 1.0))]))
    selection = strategy.select(view, np.random.default_rng(0))
    assert (selection.role, selection.parents, selection.inspirations) == (PolicyRole.PROPOSE, (), ())


@pytest.mark.parametrize(
    ("name", "options", "where", "says"),
    [
        ("hill_climb", {}, "strategy", ", ".join(STRATEGIES)),
        ("best_of_n", {"n": 3}, "strategy_options.n", "Options: none"),
        ("islands_map_elites", {"islands": 0}, "strategy_options.islands", "islands: integer, ≥ 1, ≤ 64, default 4"),
        ("islands_map_elites", {"crossover": float("nan")}, "strategy_options.crossover", "≥ 0, ≤ 1"),
        ("islands_map_elites", {"selection": "best"}, "strategy_options.selection", "epsilon_lexicase, lexicase"),
        ("islands_map_elites", {"features": ["colour"]}, "strategy_options.features.0", "length, nesting, depth"),
        ("islands_map_elites", {"features": ["depth", "depth"]}, "strategy_options.features", "is repeated"),
        ("islands_map_elites", {"colour": 4}, "strategy_options.colour", "no such option"),
        ("vector_evolution", {"islands": 4}, "strategy_options.islands", "an option of mind_evolution and islands_map"),
        ("vector_evolution", {"focus": 2}, "strategy_options.focus", "focus: number, ≥ 0, ≤ 1"),
    ],
)
def test_an_unknown_name_or_option_lists_the_valid_ones(
    name: str, options: Mapping[str, Any], where: str, says: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build_strategy(name, options)
    assert caught.value.field_errors[0].where == where
    assert says in f"{caught.value} {caught.value.remedy} {caught.value.field_errors[0]}"
