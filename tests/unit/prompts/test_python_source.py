"""Parsing Python despite interpreter errors."""

from __future__ import annotations

import ast

import pytest

from speciate.prompts.python_source import parse_python


def test_a_parser_error_caused_by_threads_is_not_the_programs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, refusals = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=63, after=57)")] * 2

    def disturbed(text: str) -> ast.Module:
        if refusals:
            raise refusals.pop()
        return parse(text)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert isinstance(parse_python("x = 1\n"), ast.Module)
    assert not refusals
