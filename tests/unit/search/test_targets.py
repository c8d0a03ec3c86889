"""Target cells: which candidates they keep, and which parents come from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.target import Target
from speciate.search.cells import TARGET
from speciate.search.strategies import build_strategy
from speciate.search.targets import place_candidates, select_parents, target_bids
from tests.support.population import ListView, evaluated, raw_rewards, vector_problem

BOTH = Target(name="both", rule="r0 >= 0.9 and r1 >= 0.9", unlock=True)


def problem(*, constrained: bool = False) -> Problem:
    return vector_problem(2, constrained=constrained).model_copy(update={"targets": (BOTH,)})


def candidate(of: Problem, number: int, *point: float, excess: float = 0.0) -> Individual:
    rewards = raw_rewards(of, point, excess)
    return evaluated(number, 0, f"x = {number}\n", rewards, of.targets_met(rewards))


def placed(of: Problem, *candidates: Individual, strategy: str = "best_of_n") -> ListView:
    view = ListView(of)
    for each in candidates:
        view.grant(place_candidates(build_strategy(strategy, {}), view, [each]))
    return view


def holder(view: ListView, slot: str) -> int:
    return view.snapshot()[0, f"{TARGET}both/{slot}"].number


def test_a_point_that_no_weighting_prefers_stays_if_it_is_near_a_target() -> None:
    of = problem()
    ends = [candidate(of, 2, 1.0, 0.7), candidate(of, 3, 0.7, 1.0)]
    between = candidate(of, 4, 0.82, 0.82)  # below the line between the two ends
    view = placed(of, *ends, between)
    assert 4 not in {p.number for (_, cell), p in view.snapshot().items() if not cell.startswith(TARGET)}
    assert holder(view, "near") == 4


def test_a_candidate_that_meets_the_target_is_not_displaced_by_a_better_sum() -> None:
    of = problem()
    view = placed(of, candidate(of, 2, 0.9, 0.9), candidate(of, 3, 5.0, 0.8))
    assert {holder(view, slot) for slot in ("even", "balance", "w0", "w1")} == {2}


def test_of_those_that_meet_it_each_objective_keeps_its_best() -> None:
    of = problem()
    view = placed(of, candidate(of, 2, 0.9, 1.0), candidate(of, 3, 1.0, 0.9), candidate(of, 4, 0.96, 0.96))
    assert [holder(view, slot) for slot in ("w0", "w1", "even", "balance")] == [3, 2, 4, 4]


def test_each_part_of_a_rule_keeps_the_candidate_that_misses_least_of_the_others() -> None:
    of = problem()
    view = placed(of, candidate(of, 2, 0.6, 0.6), candidate(of, 3, 0.9, 0.2), candidate(of, 4, 0.2, 1.0))
    assert [holder(view, slot) for slot in ("near", "but0", "but1")] == [2, 4, 3]


def test_a_violated_constraint_that_the_rule_does_not_name_is_one_more_part() -> None:
    base = problem(constrained=True)
    of = base.model_copy(update={"targets": (Target(name="both", rule="r0 >= 0.9 and r1 >= 0.9", unlock=True),)})
    view = placed(of, candidate(of, 2, 0.5, 0.5), candidate(of, 3, 0.89, 0.89, excess=0.3))
    assert [holder(view, slot) for slot in ("near", "but0", "but2")] == [2, 3, 3]


def test_a_violation_counts_although_the_rule_names_the_constraint() -> None:
    base = problem(constrained=True)
    loose = Target(name="both", rule="r0 >= 0.9 and r1 >= 0.9 and excess <= 1000", unlock=True)
    of = base.model_copy(update={"targets": (loose,)})
    view = placed(of, candidate(of, 2, 0.8, 0.8), candidate(of, 3, 0.8, 0.9, excess=900.0))
    assert [holder(view, slot) for slot in ("near", "but0", "but1", "but2")] == [2, 2, 2, 2]
    # Where the rule misses the constraint, too, its part has the shortfall.
    of = base.model_copy(update={"targets": (loose.model_copy(update={"rule": "r0 >= 0.9 and excess <= 0"}),)})
    view = placed(of, candidate(of, 2, 0.5, 0.0), candidate(of, 3, 0.8, 0.0, excess=9.0))
    assert [holder(view, slot) for slot in ("near", "but0", "but1")] == [2, 2, 3]


def test_an_unmeasured_target_is_not_bid_for() -> None:
    of = problem()
    unmeasured = replace(candidate(of, 2, 1.0, 1.0), targets=0)
    assert target_bids(of, [unmeasured]) == []


def test_parents_come_from_the_nearest_candidates_and_then_from_the_winners() -> None:
    of = problem()
    strategy = build_strategy("vector_evolution", {"toward_targets": 1.0, "scratch": 0, "min_elites": 1})
    view = placed(of, candidate(of, 2, 1.0, 0.1), candidate(of, 3, 0.1, 1.0), candidate(of, 4, 0.8, 0.8))
    rng = np.random.default_rng(0)
    selections = [select_parents(strategy, view, rng) for _ in range(50)]
    assert {selection.parents[0] for selection in selections} == {
        2,
        3,
        4,
    }  # each misses one part only, or both by little
    assert all(selection.role is PolicyRole.MUTATE for selection in selections)
    assert all(len({*s.parents, *s.inspirations}) == len(s.parents) + len(s.inspirations) for s in selections)
    view.grant(place_candidates(strategy, view, [candidate(of, 5, 0.9, 1.1), candidate(of, 6, 1.1, 0.9)]))
    assert {select_parents(strategy, view, rng).parents[0] for _ in range(50)} == {5, 6}


def test_strategies_that_sample_independently_stay_independent() -> None:
    of = problem()
    view = placed(of, candidate(of, 2, 0.8, 0.8))
    rng = np.random.default_rng(0)
    assert not any(select_parents(build_strategy("best_of_n", {}), view, rng).parents for _ in range(20))


def test_an_infeasible_candidate_that_satisfies_the_rule_meets_no_target_and_is_near_it() -> None:
    of = problem(constrained=True)
    inside, outside = candidate(of, 2, 0.5, 0.5), candidate(of, 3, 1.0, 1.0, excess=0.2)
    assert (inside.targets, outside.targets, candidate(of, 4, 1.0, 1.0).targets) == (0, 0, 1)
    cells = {cell for cell, row, _ in target_bids(of, [outside]) if row == 0}
    assert f"{TARGET}both/near" in cells
    assert holder(placed(of, inside, outside), "near") == 2
