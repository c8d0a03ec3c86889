"""Compact prompts show what a small model needs, and no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from speciate.domain.candidate import Failure, FailureKind, Individual
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.mutation import build_prompt
from speciate.prompts.text import prompt_tokens


def prompt(problem: Problem, parent: Individual | None, **changes: object) -> Prompt:
    policy = Policy.model_validate({"slug": "p", "kind": "scripted", "prompt_style": "compact", **changes})
    role = PolicyRole.PROPOSE if parent is None else PolicyRole.MUTATE
    return build_prompt(problem, role, [] if parent is None else [parent], [], policy, np.random.default_rng(0))


@pytest.mark.parametrize("slug", bundled())
def test_compact_prompts_are_short(slug: str) -> None:
    problem = load_problem(bundled()[slug])
    parent = Individual(1, problem.seed_program, None)
    compact, standard = prompt(problem, parent), prompt(problem, parent, prompt_style="standard")
    assert 2 * prompt_tokens(compact) < prompt_tokens(standard)
    assert compact.user.rstrip().endswith("in one ```python block.")


def test_only_the_marked_region_is_shown() -> None:
    problem = load_problem(bundled()["circle-packing-26"])
    parent = Individual(7, problem.seed_program, (1.7, 0.01, 0.6, 0.0))
    user = prompt(problem, parent).user
    assert "def centres()" in user
    assert "def relax" not in user
    assert "do not define them: largest_radii, relax, ring, solve." in user
    assert "that defines centres" in user
    assert "sum_of_radii = 1.7 (higher is better)" in user
    assert "overlap = 0 (lower is better)" in user


def test_failures_and_several_answers_are_named(problem: Callable[..., Problem]) -> None:
    failure = Failure(FailureKind.CRASHED, "raised", "ZeroDivisionError: division by zero")
    parent = Individual(3, "def solve():\n    return 1 / 0\n", None, failure)
    user = prompt(problem(), parent, answers_per_rollout=3).user
    assert "It fails: raised. ZeroDivisionError: division by zero" in user
    assert "Give 3 different programs" in user


def test_other_candidates_get_standard_prompts(data_problem: Problem) -> None:
    assert prompt(data_problem, None) == prompt(data_problem, None, prompt_style="standard")


def test_diffs_have_no_compact_form() -> None:
    with pytest.raises(ValueError, match="asks for whole programs"):
        Policy.model_validate({"slug": "p", "kind": "scripted", "prompt_style": "compact", "edit_format": "diff"})


def test_long_programs_are_cut_to_the_limit(problem: Callable[..., Problem]) -> None:
    parent = Individual(1, "x = 1\n" * 5000, None)
    assert prompt_tokens(prompt(problem(), parent, prompt_tokens=2000)) <= 2000
