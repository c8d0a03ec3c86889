"""Mind Evolution: recombination, refinement of the latest children, migration and resets."""

from __future__ import annotations

from collections import Counter

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.search.epochs import epoch_of
from speciate.search.islands import island_weights
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Strategy
from tests.support.population import ListView, evaluated, synthetic_batch, vector_problem

PROBLEM = vector_problem(3)


def mind_evolution(**options: object) -> Strategy:
    return build_strategy("mind_evolution", {"islands": 1, "turns": 3, **options})


def grown(strategy: Strategy) -> ListView:
    view = ListView(PROBLEM)
    rng = np.random.default_rng(0)
    for island in range(strategy.islands):
        view.grant(strategy.place(view, synthetic_batch(PROBLEM, 100 * (island + 1), 64, island, rng)))
    return view


def test_a_generation_begins_with_a_uniform_number_of_parents() -> None:
    strategy = mind_evolution()
    view = grown(strategy)
    view.batch = 3
    selections = [strategy.select(view, np.random.default_rng(seed)) for seed in range(1200)]
    counts = Counter(len(s.parents) for s in selections)
    assert counts.keys() == set(range(6))
    assert all(abs(count / 1200 - 1 / 6) < 0.04 for count in counts.values())
    assert all((s.role is PolicyRole.PROPOSE) == (not s.parents) for s in selections)


def test_parents_are_drawn_by_their_score_and_the_temperature() -> None:
    problem = vector_problem(1)
    shares = []
    for temperature in (0.05, 50.0):
        strategy = mind_evolution(parents=1, temperature=temperature, population=64)
        view = ListView(problem)
        for number, program in enumerate("abcdefgh", start=2):
            view.grant(strategy.place(view, [evaluated(number, 0, program, (number / 10,))]))
        view.batch = 3
        known = view.numbers()
        assert len(known) == 8
        parents = [p for seed in range(600) for p in strategy.select(view, np.random.default_rng(seed)).parents]
        shares.append(parents.count(max(known)) / len(parents))
    assert shares[0] > 0.8
    assert abs(shares[1] - 1 / 8) < 0.06


def test_later_turns_refine_the_latest_children_unless_they_are_much_worse() -> None:
    strategy = mind_evolution(conversations=4)
    view = grown(strategy)
    weights = island_weights(PROBLEM, view.seed, 0)
    best = float((view.elites(0).rewards @ weights).max())
    view.batch = 3
    children = [evaluated(900 + i, 0, f"y = {i}\n", (best + 0.2 - i,) * 3) for i in range(2)]
    view.grant(strategy.place(view, children))
    for view.batch in (4, 5):
        selections = [strategy.select(view, np.random.default_rng(seed)) for seed in range(60)]
        assert {s.role for s in selections} == {PolicyRole.MUTATE}
        assert {len(s.parents) for s in selections} == {1}
        assert [s.parents for s in selections].count((900,)) > 50
        assert (901,) not in {s.parents for s in selections}


def test_a_child_outside_the_elites_is_refined_in_its_own_generation_only() -> None:
    strategy = mind_evolution(conversations=1, temperature=50.0)
    view = grown(strategy)
    view.batch = 3
    view.grant(strategy.place(view, [evaluated(900, 0, "y = 0\n", (-0.5, -0.5, -0.5))]))
    refined = {}
    for view.batch in (4, 5, 6):
        chosen = [strategy.select(view, np.random.default_rng(seed)).parents for seed in range(400)]
        refined[view.batch] = any(900 in parents for parents in chosen)
    assert refined == {4: True, 5: True, 6: False}


def test_a_child_of_a_later_turn_replaces_a_better_one() -> None:
    strategy = mind_evolution(conversations=1)
    view = ListView(PROBLEM)
    view.grant(strategy.place(view, [evaluated(2, 0, "x", (0.9, 0.9, 0.9)), evaluated(3, 0, "y", (0.1, 0.1, 0.1))]))
    newest = {}
    for view.batch in (1, 2):
        view.grant(strategy.place(view, [evaluated(3 + view.batch, 0, f"z{view.batch}", (0.2, 0.2, 0.2))]))
        table = view.elites(0)
        newest[view.batch] = int(table.numbers[table.cells.index("@turn0")])
    assert newest == {1: 4, 2: 5}


def test_one_turn_is_no_refinement() -> None:
    strategy = mind_evolution(turns=1)
    view = grown(strategy)
    for view.batch in range(1, 7):
        assert len({strategy.select(view, np.random.default_rng(s)).parents for s in range(20)}) > 6


def test_the_best_migrate_after_a_generation() -> None:
    strategy = mind_evolution(islands=3, migrants=2, reset_interval=0)
    view = grown(strategy)
    rng = np.random.default_rng(0)
    sends = []
    for view.batch in range(18):
        source = view.batch % 3
        moved = strategy.maintain(view, rng)
        sends += [view.batch] * bool(moved)
        if moved:
            table = view.elites(source)
            scores = table.rewards @ island_weights(PROBLEM, view.seed, source)
            ranking = dict(zip(table.numbers.tolist(), scores.tolist(), strict=True))
            best = sorted(ranking, key=lambda number: -ranking[number])[:2]
            assert {p.number for p in moved} <= set(best)
            assert {p.island for p in moved} == {(source + 1) % 3}
            assert not any(p.cell.startswith("@") for p in moved)
    assert sends == [9, 10, 11]


def test_the_weakest_islands_are_reset_after_some_generations() -> None:
    strategy = mind_evolution(islands=4, migrants=0, reset_interval=2, resets=2, founders=3)
    view = grown(strategy)
    due = 4 * 3 * 2
    for view.batch in range(due):
        assert strategy.maintain(view, np.random.default_rng(0)) == ()
    view.batch = due
    view.grant(strategy.maintain(view, np.random.default_rng(0)))
    epochs = [epoch_of(view.elites(island)) for island in range(4)]
    assert sorted(epochs) == [0, 0, 1, 1]
    view.batch = due + 4 + epochs.index(1)
    fresh = epochs.index(1)
    assert view.batch % 4 == fresh
    parents = {p for seed in range(200) for p in strategy.select(view, np.random.default_rng(seed)).parents}
    assert len(parents) == 3
