"""The arena evaluates bundled problems in its own process as the sandbox does."""

import pytest

from experiments.arena.problems import DEVELOPMENT, HELD_OUT, InProcessEvaluator, problem_of


@pytest.mark.parametrize("slug", [*DEVELOPMENT, *HELD_OUT])
def test_a_seed_program_is_scored(slug: str) -> None:
    problem = problem_of(slug)
    evaluation = InProcessEvaluator(slug).evaluation(problem, problem.seed_program or "")
    assert evaluation.rewards is not None, evaluation.failure
