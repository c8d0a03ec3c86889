"""Parsing Python despite interpreter errors."""

from __future__ import annotations

import ast
import sys

import pytest

from speciate.domain.candidate import Failure
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


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the parser reads f-strings in linear time")
@pytest.mark.parametrize("quotes", ["x = f'{}'", 'x = "f"; y = Rf"""\n{}"""'])
def test_f_strings_whose_parsing_would_take_quadratic_time_are_refused(quotes: str) -> None:
    refused = parse_python("# a line\n" + quotes.replace("{}", "{a}" * 40_000))
    assert isinstance(refused, Failure)
    assert refused.detail == "line 2: too many fields in f-strings"


def test_braces_outside_of_long_f_strings_are_no_fields() -> None:
    for text in ("x = '" + "{a}" * 40_000 + "'", "x = [" + "f'{a}'," * 4000 + "]", "x = [" + "{}," * 40_000 + "]"):
        assert isinstance(parse_python(text), ast.Module)
