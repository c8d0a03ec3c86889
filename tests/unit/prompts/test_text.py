"""Prompts never exceed the policy's limit, and the least useful parts are dropped first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from speciate.domain.candidate import Failure, FailureKind, Individual
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.prompts.mutation import build_prompt
from speciate.prompts.state import SearchState
from speciate.prompts.text import clipped, fenced, prompt_tokens, token_bound

PARENT = Individual(7, "x = 1\n" * 200, (2.5, 0.5, 3.0), artifacts={name: f"<{name}> " * 100 for name in "abc"})
OTHERS = tuple(Individual(number, f"# {number}\n" + "y = 2\n" * 200, (0.0, 0.6, 0.0)) for number in range(10, 15))

CAUSES = tuple(f"cause {name} " * 30 for name in "xyz")

Shorten = Callable[..., str]


@pytest.fixture
def shorten(problem: Callable[..., Problem], policy: Callable[..., Policy]) -> Shorten:
    def build(tokens: int, *, seed: int = 0, parents: tuple[Individual, ...] = (PARENT,), **changes: Any) -> str:
        of = problem(kind="cases", evaluator="", **(_CASES | changes))
        rng = np.random.default_rng(seed)
        asked = policy(prompt_tokens=tokens)
        made = build_prompt(of, PolicyRole.MUTATE, parents, OTHERS, asked, rng, state=SearchState(causes=CAUSES))
        assert token_bound(made.system) + token_bound(made.user) <= prompt_tokens(made) <= tokens
        return made.user

    return build


_CASES: dict[str, Any] = {
    "objectives": [{"name": name} for name in ("a", "b", "c")],
    "targets": [{"name": "all", "rule": "a >= 3", "unlock": True}],
    "cases": [{"input": [name], "expected": "z" * 200, "reward": name} for name in ("a", "b", "c")],
    "description": "The task. " * 60,
}


def shown_of(user: str) -> dict[str, Any]:
    return {
        "others": [number for number in range(10, 15) if f"### Program {number}" in user],
        "feedback": [name for name in "abc" if f"<{name}>" in user],
        "causes": [name for name in "xyz" if f"cause {name}" in user],
        "examples": "## Examples" in user,
        "parent": user.count("x = 1\n"),
        "description": user.count("The task."),
    }


EVERYTHING = {
    "others": [10, 11, 12, 13, 14],
    "feedback": ["a", "b", "c"],
    "causes": ["x", "y", "z"],
    "examples": True,
    "parent": 200,
    "description": 60,
}


def test_parts_are_dropped_in_order(shorten: Shorten) -> None:
    seen = [shown_of(shorten(tokens)) for tokens in range(2000, 20_000, 100)]
    assert seen[-1] == EVERYTHING
    before = list(EVERYTHING)
    for shown in seen:
        # A part is dropped only when all parts before it are gone.
        for i, later in enumerate(before[1:], start=1):
            if shown[later] != EVERYTHING[later]:
                if later in ("feedback", "causes", "examples"):
                    assert not any(shown[earlier] for earlier in before[:i])
                else:
                    assert not any(shown[earlier] for earlier in before[:4])
        for name in ("others", "feedback", "causes"):
            assert shown[name] == EVERYTHING[name][: len(shown[name])]
    assert {len(shown["others"]) for shown in seen} == set(range(6))
    assert {len(shown["feedback"]) for shown in seen} == {len(shown["causes"]) for shown in seen} == set(range(4))
    assert {shown["examples"] for shown in seen} == {True, False}
    assert seen[0]["parent"] < 200


def test_dropped_parts_do_not_depend_on_the_generator(shorten: Shorten) -> None:
    for tokens in range(2000, 12_000, 500):
        kept = [shown_of(shorten(tokens, seed=seed)) for seed in range(4)]
        # The parts fit the longest request, so the drawn one fits as well.
        assert all(shown == kept[0] for shown in kept)


def test_without_others_no_request_mentions_them(shorten: Shorten) -> None:
    users = [shorten(6000, seed=seed) for seed in range(40)]
    assert all(shown_of(user)["others"] == [] for user in users)
    assert not any("programs above" in user for user in users)
    assert any("programs above" in shorten(20_000, seed=seed) for seed in range(40))


def test_finally_the_middle_of_program_and_description_is_cut(shorten: Shorten) -> None:
    big = Individual(1, "first = 1\n" + "é = 1\n" * 10_000 + "last = 1\n", None, Failure(FailureKind.CRASHED, "raised"))
    user = shorten(4000, parents=(big,))
    assert "first = 1" in user
    assert "last = 1" in user
    assert "characters cut" in user
    assert user.count("The task.") == 60
    user = shorten(2500, parents=(big,), description="Start. " + "ü" * 50_000 + " End.")
    assert "Start." in user
    assert "End." in user
    assert user.rstrip().endswith("Answer in the form given above.")


def test_the_block_is_cut_before_the_description_whatever_is_fixed(shorten: Shorten) -> None:
    program = "# fixed\n" * 600 + "# EVOLVE-BLOCK-START\n" + "x = 1\n" * 500 + "# EVOLVE-BLOCK-END\n"
    parent = Individual(1, program, None, Failure(FailureKind.CRASHED, "raised"))
    user = shorten(7500, parents=(parent,), seed_program=program)
    assert "characters cut" in user
    assert user.count("The task.") == 60


def test_any_prompt_fits(shorten: Shorten, problem: Callable[..., Problem], policy: Callable[..., Policy]) -> None:
    """Parts that cannot be dropped are cut."""
    many = problem(
        objectives=[{"name": f"r{i}", "description": "é" * 200} for i in range(100)],
        targets=[{"name": f"t{i}", "rule": "r0 > 1", "unlock": i == 0, "description": "d" * 200} for i in range(50)],
        prompts={"system": "Be good. " * 2000 + "\n$form\n$caution"},
    )
    member = Individual(1, "x = 1", (0.0,) * 100)
    made = build_prompt(many, PolicyRole.MUTATE, (member,), (), policy(prompt_tokens=2000), np.random.default_rng(0))
    assert prompt_tokens(made) <= 2000
    assert made.user.startswith("# Problem")


def test_a_cut_prompt_keeps_its_ends() -> None:
    prompt = Prompt("s" * 100, "a" * 500 + "ö" * 500 + "b" * 500)
    assert clipped(prompt, 3000) is prompt
    for most in range(120, 2102):
        less = clipped(prompt, most)
        assert prompt_tokens(less) <= most
        assert less.system == prompt.system or most < 202
        assert less == prompt or "… cut …" in less.user
    assert clipped(prompt, 1000).user.startswith("aaa")
    assert clipped(prompt, 1000).user.endswith("bbb")


def outside_of_fences(user: str) -> str:
    return "".join(token.content for token in MarkdownIt("commonmark").parse(user) if token.type != "fence")


def test_a_cut_leaves_fenced_text_fenced() -> None:
    hostile = "# evil\n```\n~~~\n## Evil\n\nevil\n" + "\U0001f600" * 40 + "\n"
    user = f"# Task\n\n{fenced(hostile * 2, 'python')}\n\nOutput:\n{fenced(hostile)}\n\n## Request\n\nImprove `x`.\n"
    for most in range(100, token_bound(user)):
        less = clipped(Prompt("", user), most)
        assert prompt_tokens(less) <= most
        assert "vil" not in outside_of_fences(less.user), most
    assert outside_of_fences(less.user).endswith("Improve `x`.")


def test_characters_of_several_bytes_leave_the_request_in_place(shorten: Shorten) -> None:
    detail = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: ' + "\U0001f600" * 2000
    big = Individual(1, "\U0001f600" * 3000, None, Failure(FailureKind.CRASHED, "raised", detail))
    user = shorten(4500, parents=(big,), description="Short.")
    assert "… cut …" not in user
