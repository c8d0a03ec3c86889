"""The examples of the pages on evaluators are complete problems whose seed programs score."""

import re
import tomllib
from pathlib import Path

import pytest

from speciate.domain.problem import Problem, ProblemKind
from speciate.problems.loader import load_problem

HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto"
PAGES = [(HOWTO / name).read_text() for name in ("write-evaluators.md", "cascade-evaluators.md")]
BLOCKS = [block for page in PAGES for block in re.findall(r"```toml\n(slug.*?)```", page, re.DOTALL)]
EXAMPLES = {problem.slug: problem for block in BLOCKS for problem in [Problem.model_validate(tomllib.loads(block))]}


def test_there_is_an_example_of_every_kind():
    assert {problem.kind for problem in EXAMPLES.values()} == set(ProblemKind)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_saved_as_problem_toml_is_that_problem(tmp_path, block):
    (tmp_path / "problem.toml").write_text(block)
    problem = load_problem(tmp_path)
    assert problem == EXAMPLES[problem.slug]


BETTER = {
    "integer-square-root": ((1.0, 0.5), "from math import isqrt as solve", (1.0, 1.0)),
    "short-sorter": ((1.0, 42.0), "sort = sorted", (1.0, 13.0)),
    "short-tour": (None, "[0, 2, 4, 7, 1, 8, 6, 3, 5]", None),
    "imported-average": ((0.25,), "from statistics import mean", (1.0,)),
    "longer-chain": ((1.0,), "def improve():\n    return list(range(1000))\n", (1000.0,)),
    "careful-sorter": ((0.5, 0.0), "sort = sorted", (1.0, 1.0)),
    "area-of-rings": (
        (0.0,),
        (
            "# === file: candidate.py ===\nfrom a import solve\n"
            "# === file: a.py ===\nfrom math import pi\ndef solve(a, b):\n    return pi * (b**2 - a**2)\n"
        ),
        (1.0,),
    ),
}
"""What the seed program scores, a program that unlocks the problem, and what that scores; None is not looked at."""


@pytest.mark.parametrize("slug", EXAMPLES)
def test_examples_score_and_can_be_unlocked(sandbox, slug):
    problem, (rewards, better, unlocked) = EXAMPLES[slug], BETTER[slug]
    first, second = sandbox.evaluate(problem, [problem.seed_program, better], seeds=[0, 0])
    assert first.failure is None
    assert second.failure is None
    assert rewards in (None, first.rewards)
    assert unlocked in (None, second.rewards)
    assert problem.targets_met(first.rewards, stopped_at=first.stopped_at) == 0
    assert problem.targets_met(second.rewards, stopped_at=second.stopped_at) == 1


def test_numbers_that_are_equal_do_not_lengthen_a_chain(sandbox):
    forged = "def improve():\n    return [x for i in range(1000) for x in (i, float(i))] + [True, False]\n"
    (evaluation,) = sandbox.evaluate(EXAMPLES["longer-chain"], [forged], seeds=[0])
    assert evaluation.failure is not None
