"""Compact prompts show what a small model needs, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from speciate.domain.candidate import Failure, FailureKind, Individual
from speciate.domain.policy import Policy, PolicyRole, PromptStyle
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.compact import opening_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.prompts.python_source import shape_key
from speciate.prompts.state import SearchState
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
    assert "def circles()" in user
    assert "def relax" not in user
    assert "do not define them: circles_at, largest_radii, relax, ring, solve." in user
    assert "that defines circles" in user
    assert "sum_of_radii = 1.7 (higher is better)" in user
    assert "overlap = 0 (lower is better)" in user


def test_failures_and_several_answers_are_named(problem: Callable[..., Problem]) -> None:
    failure = Failure(FailureKind.CRASHED, "raised", "ZeroDivisionError: division by zero")
    parent = Individual(3, "def solve():\n    return 1 / 0\n", None, failure)
    user = prompt(problem(), parent, answers_per_rollout=3).user
    assert "It fails: ZeroDivisionError: division by zero" in user
    assert "Give 3 different programs" in user


def test_the_most_frequent_failure_is_one_line(problem: Callable[..., Problem]) -> None:
    policy = Policy.model_validate({"slug": "p", "kind": "scripted", "prompt_style": "compact"})
    causes = ("9 of the last 9 programs: NameError: name 'np' is not defined", "1 of the last 9 programs: other")
    for role in (PolicyRole.PROPOSE, PolicyRole.MUTATE):
        parents = [Individual(1, "x = 1\n", (1.0, 0.0, 0.0))] if role is PolicyRole.MUTATE else []
        state = SearchState(causes=causes)
        user = build_prompt(problem(), role, parents, [], policy, np.random.default_rng(0), state=state).user
        assert "\n\nAvoid what failed before: 9 of the last 9 programs: NameError: name 'np' is not defined\n\n" in user
        assert "other" not in user


OPENINGS: Final = {
    "circle-packing-26": "def circles():",
    "online-bin-packing": "def priority(item, rooms):",
    "planck-radiation": "def formula(omega, temperature):",
    "relativistic-energy": "def formula(mass, speed, light):",
    "sorting-network-8": "def build(network):",
}
PREFILLED: Final = Policy(slug="p", kind="scripted", prompt_style="prefilled")


@pytest.mark.parametrize("slug", bundled())
def test_a_prefilled_reply_begins_with_the_function_to_write(slug: str) -> None:
    problem = load_problem(bundled()[slug])
    asked = prompt(problem, Individual(1, problem.seed_program, None), prompt_style="prefilled")
    assert opening_of(PREFILLED, asked) == f"```python\n{OPENINGS[slug]}"
    assert asked.user.endswith(f" It begins with `{OPENINGS[slug]}`.")
    (answer,) = parse_completion("\n    return []", problem=problem, policy=PREFILLED, parent=problem.seed_program)
    assert answer.failure is None
    assert f"{OPENINGS[slug]}\n    return []\n" in answer.program


@pytest.mark.parametrize(
    ("code", "opening"),
    [
        ("def f(a, *b, c: int = 1) -> int:\n    return 1\n", "def f(a, *b, c: int=1) -> int:"),
        ('"""Text."""\ndef f(): return 1\n', "def f():"),
        ("import re\n\ndef f():\n    return re\n", ""),
        ("def f():\n    return 1\n\ndef g():\n    return 2\n", ""),
        ("@cache\ndef f():\n    return 1\n", ""),
        ("x = 1\n\ndef f():\n    return x\n", ""),
        ("def f(:\n", ""),
    ],
)
def test_only_a_single_function_is_begun(problem: Callable[..., Problem], code: str, opening: str) -> None:
    asked = prompt(problem(), Individual(1, code, None), prompt_style="prefilled")
    assert opening_of(PREFILLED, asked) == f"```python\n{opening}"


def test_a_prompt_leaves_the_parsed_parent_as_it_was(problem: Callable[..., Problem]) -> None:
    code = "def f():\n    return 1\n"
    prompt(problem(), Individual(1, code, None), prompt_style="prefilled")
    assert shape_key(code) != shape_key("def f():\n    pass\n")


def test_a_first_program_begins_with_the_call_in_the_description(problem: Callable[..., Problem]) -> None:
    asked = problem(seed_program="", description="Define solve(a, b), the sum.")
    assert opening_of(PREFILLED, prompt(asked, None, prompt_style="prefilled")) == "```python\ndef solve(a, b):"
    other = problem(seed_program="", description="Add numbers.")
    assert opening_of(PREFILLED, prompt(other, None, prompt_style="prefilled")) == "```python\n"


def test_a_reply_that_begins_its_own_block_is_read_as_it_is(problem: Callable[..., Problem]) -> None:
    text = "```python\ndef solve():\n    return 2\n```"
    (answer,) = parse_completion(text, problem=problem(), policy=PREFILLED, parent="def solve():\n    return 1\n")
    assert answer.program == "def solve():\n    return 2\n"


def test_other_prompts_are_not_continued(problem: Callable[..., Problem], data_problem: Problem) -> None:
    assert opening_of(PREFILLED, prompt(data_problem, None, prompt_style="prefilled")) == ""
    assert opening_of(PREFILLED.model_copy(update={"prompt_style": PromptStyle.COMPACT}), prompt(problem(), None)) == ""


def test_other_candidates_get_standard_prompts(data_problem: Problem) -> None:
    assert prompt(data_problem, None) == prompt(data_problem, None, prompt_style="standard")


@pytest.mark.parametrize("style", ["compact", "prefilled"])
def test_diffs_have_no_compact_form(style: str) -> None:
    with pytest.raises(ValueError, match=f"'{style}' asks for whole programs"):
        Policy.model_validate({"slug": "p", "kind": "scripted", "prompt_style": style, "edit_format": "diff"})


def test_long_programs_are_cut_to_the_limit(problem: Callable[..., Problem]) -> None:
    parent = Individual(1, "x = 1\n" * 5000, None)
    assert prompt_tokens(prompt(problem(), parent, prompt_tokens=2000)) <= 2000


@pytest.mark.parametrize(
    ("code", "versions"),
    [
        ("def f(a, b):\n    return a\n", ["return 2 * a", "return a + a", "return a * 4 // 2"]),
        ("def f(*, a=1):\n    return a\n", ["return 2 * 21", "return 21 + 21", "return 21 * 4 // 2"]),
        ("def f():\n    return 1\n", ["return 2 * 21", "return 21 + 21", "return 21 * 4 // 2"]),
    ],
)
def test_a_prefilled_set_shows_its_form_with_every_version_begun(
    problem: Callable[..., Problem], code: str, versions: list[str]
) -> None:
    asked = prompt(problem(), Individual(1, code, None), prompt_style="prefilled", answers_per_rollout=3)
    line = code.partition("\n")[0]
    shown = "\n\n".join(f"{line}\n    {version}" for version in versions)
    assert f"```python\n{shown}\n```" in asked.user
    assert opening_of(PREFILLED, asked) == f"```python\n{line}"
    policy = Policy(slug="p", kind="scripted", prompt_style="prefilled", answers_per_rollout=3)
    reply = shown.removeprefix(line)
    answers = parse_completion(reply, problem=problem(), policy=policy, parent=code)
    assert [answer.failure for answer in answers] == [None] * 3
