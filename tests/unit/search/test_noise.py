"""What is known of programs with noisy rewards, and which of them is evaluated again."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from speciate.domain.candidate import Individual
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.stage import Stage
from speciate.domain.target import Target
from speciate.search.noise import Trial, again, bounded, estimates, revise
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Placement
from tests.support.population import ListView, vector_problem


def noisy_problem(dimensions: int = 1) -> Problem:
    return vector_problem(dimensions).model_copy(update={"stochastic": True})


def seconds_problem() -> Problem:
    seconds = Objective(name="r0", direction=Direction.MINIMIZE, range=(0.0, 10.0))
    return noisy_problem().model_copy(update={"objectives": (seconds,)})


def trials_of(values: dict[int, list[float]]) -> list[Trial]:
    return [Trial(number, k, (x,)) for number, xs in values.items() for k, x in enumerate(xs)]


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
def test_rewards_of_any_size_are_estimated_alike(scale: float) -> None:
    rng = np.random.default_rng(8)
    values = {n: list(rng.normal(0.5, 0.1, size=4)) for n in range(1, 4)} | {4: [0.7]}
    plain = estimates(noisy_problem(), trials_of(values))
    scaled = estimates(noisy_problem(), trials_of({n: [scale * x for x in xs] for n, xs in values.items()}))
    for number, known in plain.items():
        assert scaled[number].mean == (scale * known.mean[0],)
        assert scaled[number].error == (scale * known.error[0],)


def test_estimates_beside_the_largest_and_the_smallest_spread_are_finite() -> None:
    trials = [Trial(1, k, (1e-320 * k, (-1.0) ** k * sys.float_info.max)) for k in range(3)]
    known = estimates(noisy_problem(2), [*trials, Trial(2, 0, (0.7, 0.7))])
    assert np.isfinite([(each.mean, each.error) for each in known.values()]).all()
    assert known[2].mean[0] == pytest.approx(0.7)


def test_known_is_the_mean_with_its_standard_error() -> None:
    rng = np.random.default_rng(0)
    values = {n: list(rng.normal(0.5, 0.1, size=400)) for n in range(1, 4)}
    known = estimates(noisy_problem(), trials_of(values))
    for number, xs in values.items():
        assert known[number].evaluations == 400
        assert known[number].mean[0] == pytest.approx(np.mean(xs), abs=0.02)
        assert known[number].error[0] == pytest.approx(0.1 / 20, rel=0.2)


def test_programs_with_different_trials_compare_without_the_luck_of_a_seed() -> None:
    rng = np.random.default_rng(1)
    seeds = [0.5, -0.5, 0.0, 0.2, -0.2]  # the first seed flatters every program
    values = {n: [0.01 * n + s + rng.normal(0, 1e-3) for s in seeds] for n in (1, 2, 3)}
    values[4] = [0.02 + 0.5]
    known = estimates(noisy_problem(), trials_of(values))
    assert known[4].mean[0] - known[2].mean[0] == pytest.approx(0.0, abs=0.01)
    assert max(each.error[0] for each in known.values()) < 0.01


def test_an_evaluator_that_ignores_its_seed_loses_nothing_to_the_correction() -> None:
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(40):
        values = {n: list(rng.normal(0.0, 1.0, size=6)) for n in range(1, 6)}
        known = estimates(noisy_problem(), trials_of(values))
        errors += [known[n].mean[0] for n in values]
    assert np.std(errors) == pytest.approx(1 / np.sqrt(6), rel=0.2)


def test_a_value_that_varies_more_in_one_program_has_a_wider_error_there() -> None:
    rng = np.random.default_rng(3)
    values = {n: list(rng.normal(0, 0.1 * n, size=20)) for n in range(1, 6)}
    known = estimates(noisy_problem(), trials_of(values))
    assert known[5].error[0] > 2 * known[1].error[0]


def test_values_without_noise_have_no_error() -> None:
    known = estimates(noisy_problem(), trials_of({1: [0.25] * 3, 2: [0.5]}))
    assert [each.error for each in known.values()] == [(0.0,), (0.0,)]
    assert [each.mean for each in known.values()] == [(0.25,), (0.5,)]


def test_an_objective_declared_exact_has_no_error() -> None:
    problem = vector_problem(2)
    objectives = (problem.objectives[0], problem.objectives[1].model_copy(update={"stochastic": True}))
    problem = problem.model_copy(update={"objectives": objectives})
    rng = np.random.default_rng(4)
    known = estimates(problem, [Trial(1, k, tuple(rng.random(2))) for k in range(5)])
    assert known[1].error[0] == 0.0 < known[1].error[1]


def test_a_program_that_fails_in_a_trial_is_unknown() -> None:
    trials = [*trials_of({1: [0.1, 0.2], 2: [0.9, 0.8]}), Trial(2, 2, None)]
    assert set(estimates(noisy_problem(), trials)) == {1}


def test_bounds_lie_on_the_worse_side() -> None:
    problem = noisy_problem(2)
    down = Objective(name="r1", direction=Direction.MINIMIZE)
    problem = problem.model_copy(update={"objectives": (problem.objectives[0], down)})
    assert bounded(problem, (0.5, 0.5), (0.1, 0.2)) == pytest.approx((0.4, 0.7))
    assert bounded(problem, (0.5, 0.5), (0.1, 0.2), 1.0) == pytest.approx((0.6, 0.3))


def test_an_outlier_hides_no_program_and_blurs_no_other() -> None:
    rng = np.random.default_rng(5)
    values = {n: list(rng.normal(1.0, 0.01, size=6)) for n in range(1, 9)}
    values[3][2] = 10.0
    known = estimates(noisy_problem(), trials_of(values))
    assert known[3].mean[0] == pytest.approx(1.0, abs=0.02)
    assert max(each.error[0] for each in known.values()) < 0.02


def test_a_machine_of_two_speeds_is_noise_and_no_outlier() -> None:
    rng = np.random.default_rng(6)
    values = {n: list(1.0 + 0.3 * (rng.random(30) < 0.4) + rng.normal(0, 0.05, size=30)) for n in range(1, 6)}
    known = estimates(noisy_problem(), trials_of(values))
    assert known[1].mean[0] == pytest.approx(np.mean(values[1]), abs=0.03)
    assert known[1].error[0] == pytest.approx(0.15 / np.sqrt(30), rel=0.4)


@pytest.mark.parametrize("seed_program", [[0.30, 0.12, 0.13], [99.0, 0.12, 0.4], [0.001, 0.12, 0.13]])
@pytest.mark.parametrize("candidate", [[0.02], [0.02, 0.021]])
def test_no_estimate_is_better_than_all_that_was_measured(seed_program: list[float], candidate: list[float]) -> None:
    values = {1: seed_program, 4: candidate, 5: [0.05], 6: [0.2]}
    known = estimates(seconds_problem(), trials_of(values))
    least = min(*seed_program, 0.02)
    assert all(least <= each.mean[0] <= max(*seed_program, 0.2) for each in known.values())
    assert known[4].mean[0] < known[5].mean[0] < known[6].mean[0]
    for number in (4, 5, 6):
        assert known[number].mean[0] == pytest.approx(np.mean(values[number]), abs=1e-3)


def test_a_shared_correction_keeps_the_order_of_programs_with_the_same_seeds() -> None:
    """The first seed is unlucky, and without it the single trials would be better than everything measured."""
    rng = np.random.default_rng(7)
    values = {n: [1.0 + s + rng.normal(0, 1e-3) for s in (0.5, 0.0, 0.0)] for n in (1, 2, 3)}
    values |= {4: [0.9], 5: [1.0], 6: [1.2]}
    known = estimates(seconds_problem(), trials_of(values))
    singles = [known[n].mean[0] for n in (4, 5, 6)]
    assert singles[0] == pytest.approx(0.9)
    assert np.diff(singles) == pytest.approx([0.1, 0.2])


def test_one_stalled_evaluation_moves_no_other_program() -> None:
    trials = [*trials_of({1: [0.1], 4: [0.02], 5: [0.05], 6: [0.2]}), Trial(4, None, (99.0,)), Trial(5, None, (0.06,))]
    known = estimates(seconds_problem(), trials)
    assert [known[n].mean[0] for n in (1, 5, 6)] == pytest.approx([0.1, 0.055, 0.2], abs=2e-3)
    assert known[4].mean[0] == pytest.approx(49.5, abs=0.1)


@pytest.mark.parametrize("violation", [0.0, 0.5])
def test_elites_are_evaluated_again_whether_or_not_the_seed_program_is_feasible(violation: float) -> None:
    limited = Objective(name="r1", role=ObjectiveRole.CONSTRAINT, direction=Direction.MINIMIZE, limit=0.0)
    problem = noisy_problem(2)
    view = ListView(problem.model_copy(update={"objectives": (problem.objectives[0], limited)}), batch=3)
    held = [(10, "w0", 0.55), (20, "@slot0", 0.54), (30, "@slot1", 0.53)]
    view.grant([Placement(n, 0, cell, reward, (reward, 0.0), (0.05, 0.0), 1) for n, cell, reward in held])
    view.seed_rewards = (0.3, violation)
    view.recent = [Individual(40, "", (0.5, 0.0))]
    strategy = build_strategy("adaptive_evolution", {})
    chosen = sum(again(strategy, view, np.random.default_rng(i)) is not None for i in range(200))
    assert chosen == 84


@pytest.mark.parametrize(("later", "met"), [((0.9, 0.9), {"small", "large"}), ((0.9, 0.0), {"small"})])
def test_a_program_that_only_some_trials_stopped_can_meet_targets(later: tuple[float, float], met: set[str]) -> None:
    problem = noisy_problem(2).model_copy(
        update={
            "stages": (
                Stage(name="quick", objectives=("r0",), needs="r0 >= 0.5"),
                Stage(name="full", objectives=("r1",)),
            ),
            "targets": (Target(name="small", rule="r0 >= 0.4"), Target(name="large", rule="r1 >= 0", unlock=True)),
        }
    )
    trials = [Trial(1, 0, (0.49, 0.0)), *(Trial(1, k, later) for k in range(1, 10))]
    member = Individual(1, "x = 1\n", (0.49, 0.0), stopped_at="full")
    strategy = build_strategy("adaptive_evolution", {})
    revision = revise(problem, strategy, lambda *_: ListView(problem), 1, [], {1: member}, trials, [1], [])
    (known,) = revision.individuals
    assert {each.name for i, each in enumerate(problem.targets) if known.targets >> i & 1} == met


def test_a_seed_program_is_by_no_chance_better_than_itself() -> None:
    rules = (Target(name="better_than_initial", rule="r0 >= 0.4", unlock=True), Target(name="t", rule="r0 >= 0.4"))
    problem = noisy_problem(1).model_copy(update={"targets": rules})
    trials = [Trial(number, k, (0.5 + k / 100,)) for number in (1, 2) for k in range(3)]
    members = {1: Individual(1, "x = 1\n", (0.5,), role=PolicyRole.SEED), 2: Individual(2, "x = 2\n", (0.5,))}
    strategy = build_strategy("adaptive_evolution", {})
    revision = revise(problem, strategy, lambda *_: ListView(problem), 1, [], members, trials, [1, 2], [])
    assert [each.targets for each in revision.individuals] == [0b10, 0b11]
