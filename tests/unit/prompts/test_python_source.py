"""Reading Python whatever the interpreter says."""

from __future__ import annotations

import ast

import pytest

from speciate.prompts.python_source import parse_python


def test_a_count_that_threads_disturbed_is_no_flaw_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, refusals = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=63, after=57)")] * 2

    def disturbed(text: str) -> ast.Module:
        if refusals:
            raise refusals.pop()
        return parse(text)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert isinstance(parse_python("x = 1\n"), ast.Module)
    assert not refusals
