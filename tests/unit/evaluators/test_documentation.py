"""The examples of ``docs/evaluators.md`` are complete problems whose seed programs score."""

import re
import tomllib
from pathlib import Path

import pytest

from speciate.domain.problem import Problem, ProblemKind

PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluators.md"
EXAMPLES = {
    problem.kind: problem
    for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for problem in [Problem.model_validate(tomllib.loads(block))]
}


def test_there_is_an_example_of_every_kind():
    assert set(EXAMPLES) == set(ProblemKind)


@pytest.mark.parametrize(
    ("kind", "rewards", "better", "unlocked"),
    [
        (ProblemKind.CASES, (1.0, 0.5), "from math import isqrt as solve", (1.0, 1.0)),
        (ProblemKind.EVALUATOR, (1.0, 42.0), "sort = sorted", (1.0, 13.0)),
        (ProblemKind.DATA, None, "[0, 2, 4, 7, 1, 8, 6, 3, 5]", None),
    ],
)
def test_examples_score_and_can_be_unlocked(broker, kind, rewards, better, unlocked):
    problem = EXAMPLES[kind]
    first, second = broker.evaluate(problem, [problem.seed_program, better], seeds=[0, 0])
    assert first.failure is None
    assert second.failure is None
    assert rewards in (None, first.rewards)
    assert unlocked in (None, second.rewards)
    assert problem.targets_met(first.rewards) == 0
    assert problem.targets_met(second.rewards) == 1
