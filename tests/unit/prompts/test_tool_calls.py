"""Programs in calls of tools are read; calls without a program are named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.prompts.parse import parse_completion

CODE = "def solve():\n    return [1, 2]\n"
WRITE = {"name": "write_file", "arguments": {"path": "solution.py", "content": CODE}}
EDIT = {"name": "edit", "arguments": {"path": "notes.md", "old_string": "a b", "new_string": "c d"}}

NESTED = {**WRITE, "arguments": json.dumps(WRITE["arguments"])}


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{json.dumps(WRITE)}\n</tool_call>",
        f"I write the file.\n<tool_call>{json.dumps(NESTED)}</tool_call>",
        f"<think>A file, then.</think>\n<tool_call>\n{json.dumps(WRITE)}",
        f"<tool_call>\n<function=write>\n<parameter=path>\na.py\n</parameter>\n<parameter=code>\n{CODE}</parameter>\n",
        f'<function_calls>\n<invoke name="run">\n<parameter name="code">{CODE}</parameter>\n</invoke>',
        f"[TOOL_CALLS][{json.dumps(WRITE)}]",
        f"[TOOL_CALLS]{json.dumps([EDIT, WRITE])}",
        f"<tool_call>\n{json.dumps(EDIT)}\n</tool_call>\n<tool_call>\n{json.dumps(WRITE)}\n</tool_call>",
        f"[TOOL_CALLS]{json.dumps({'name': 'python', 'arguments': {'code': f'```python{chr(10)}{CODE}```'}})}",
        f"<thinking>\nA draft:\n```python\nx = 1\n```\n</thinking>\n```python\n{CODE}```",
        f"<reasoning>x = 1</reasoning>\nHere is the program.\n\n```python\n{CODE}",
    ],
)
def test_wrapped_programs_are_read(problem: Callable[..., Problem], policy: Callable[..., Policy], text: str) -> None:
    (answer,) = parse_completion(text, problem=problem(), policy=policy(), parent=None)
    assert (answer.failure, answer.program) == (None, CODE)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>', "the tool list_files without"),
        (
            '<tool_call>{"name": "str_replace", "arguments": {"old_str": "return 1", "new_str": "return 3"}}',
            "the tool str_replace without",
        ),
        ("<tool_call>" + "{" * 50_000, "the tool without"),
        ("<tool_call>" + "<parameter=a>" * 5_000, "the tool without"),
        ("[TOOL_CALLS]" + "[" * 50_000, "the tool without"),
    ],
)
def test_calls_without_a_program_are_named(
    problem: Callable[..., Problem], policy: Callable[..., Policy], text: str, detail: str
) -> None:
    (answer,) = parse_completion(text, problem=problem(), policy=policy(), parent=CODE)
    assert answer.failure is not None
    assert answer.failure.reason == "tool_call"
    assert detail in answer.failure.detail
