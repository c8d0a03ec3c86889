"""Completions that end at the limit of tokens, and completions of models that reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.prompts.parse import parse_completion

GOOD = "def solve():\n    return 1\n"
FENCED = f"```python\n{GOOD}```"
CUT = "```python\ndef solve():\n    return (1 +"
DIFF = "<<<<<<< SEARCH\n    return 1\n=======\n    return"


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("", 1, ["truncated_thinking"]),
        ("<think>\nFirst I would write\n" + FENCED, 1, ["truncated_thinking"]),
        ("<think>a</think>\n<think>\n" + FENCED, 1, ["truncated_thinking"]),
        ("<think>Sure.</think>\n" + CUT, 1, ["truncated"]),
        ("Let me explain the idea of", 1, ["truncated"]),
        (DIFF, 1, ["truncated"]),
        (FENCED, 1, [None]),
        (f"```python\n{GOOD}\ndef main():\n    print((((", 1, [None]),
        ("```python\nx = 1\ndef other():\n    pass\n\ndef solve():\n    return [1,\n", 1, ["truncated"]),
        ("```python\n" + GOOD, 1, [None]),
        (FENCED + "\n---\n" + CUT, 2, [None, "truncated"]),
        (CUT.replace("python\n", "python\n\n") + "\n```\n---\n" + FENCED, 2, ["syntax_error", None]),
    ],
)
def test_a_cut_completion_is_named(
    problem: Callable[..., Problem], policy: Callable[..., Policy], text: str, answers: int, expected: list[str | None]
) -> None:
    """Complete answers before the cut count; the incomplete one names the limit."""
    options = {"problem": problem(), "policy": policy(answers), "parent": GOOD}
    read = parse_completion(text, finish_reason="length", **options)
    assert [None if answer.failure is None else answer.failure.reason for answer in read] == expected
    if read[-1].failure is not None:
        assert "max_tokens (2048)" in read[-1].failure.detail
    elif text == "```python\n" + GOOD:  # the block is not closed: its end may be missing
        assert "max_tokens (2048)" in read[-1].note
    for answer in parse_completion(text, finish_reason="stop", **options):
        assert answer.failure is None or not answer.failure.reason.startswith("truncated")
