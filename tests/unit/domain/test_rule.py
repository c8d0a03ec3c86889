"""The rule language of targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.errors import RuleError
from speciate.domain.rule import parse_rule

NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("text", "rewards", "expected"),
    [
        ("a >= 2.5 and b <= 0", (2.5, 0.0), True),
        ("a >= 2.5 and b <= 0", (2.5, 0.1), False),
        ("a > 1 or b > 1 and b < 0", (2.0, 5.0), True),
        ("(a > 1 or b > 1) and b < 0", (2.0, 5.0), False),
        ("not a == 1", (1.0, 0.0), False),
        ("not not a != 1", (2.0, 0.0), True),
        ("a>=-1.5e-3", (-0.001, 0.0), True),
        ("  a<.5  ", (0.4, 0.0), True),
        ("\u00a0a >=\u00a05\u2003and b < 1", (5.0, 0.0), True),
    ],
)
def test_rules(text: str, rewards: tuple[float, float], expected: bool) -> None:
    assert parse_rule(text, NAMES).holds(rewards) is expected


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "name of an objective"),
        ("c > 1", 1, "unknown objective 'c' at column 1: expected one of a, b"),
        ("a > ", 5, "expected a number"),
        ("a >> 1", 4, "expected a number"),
        ("a ) 1", 3, "expected one of"),
        ("a = 1", 3, "unexpected '='"),
        ("(a > 1", 7, "expected '\\)'"),
        ("a > 1 b > 1", 7, "expected 'and', 'or' or the end"),
        ("a > 1e999", 5, "not finite"),
        ("a > 1 and", 10, "name of an objective"),
        ("a.__class__ > 1", 2, "unexpected"),
        ("not " * 60 + "a > 1", 201, "nested deeper"),
    ],
)
def test_errors_say_where_and_what(text: str, column: int, expected: str) -> None:
    with pytest.raises(RuleError, match=expected) as caught:
        parse_rule(text, NAMES)
    assert caught.value.column == column


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_an_error(text: str) -> None:
    try:
        rule = parse_rule(text, NAMES)
    except RuleError:
        return
    assert rule.holds((0.0, 0.0)) in {True, False}
