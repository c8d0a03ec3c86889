"""The rule language of targets: ``sum_of_radii >= 2.5 and overlap <= 0``.

Grammar (keywords in lower case, optional blanks)::

    rule       = conjunct { "or" conjunct }
    conjunct   = factor { "and" factor }
    factor     = "not" factor | "(" rule ")" | comparison
    comparison = NAME ( ">=" | "<=" | ">" | "<" | "==" | "!=" ) NUMBER

Rules are never evaluated as code; names are resolved to the problem's objectives when a rule is parsed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.errors import RuleError

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
"""Regular expression of a number in a rule; a word may follow it without a blank."""
_TOKEN: Final = re.compile(
    rf"\s*(?:(?P<number>{NUMBER})|(?P<word>[A-Za-z_]\w*)|(?P<sign>>=|<=|==|!=|[<>()]))",
    re.ASCII,
)
_MAX_LENGTH: Final = 10_000
_MAX_DEPTH: Final = 50

Predicate = Callable[[Sequence[float]], bool]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


@dataclass(frozen=True)
class Rule:
    """A rule parsed against the names of a reward vector.

    Attributes:
        text: Text of the rule.
        uses: Names of the objectives that it compares.
        tokens: Its words, signs and numbers in order.
    """

    text: str
    uses: frozenset[str]
    tokens: tuple[str, ...]
    _holds: Predicate

    def holds(self, rewards: Sequence[float]) -> bool:
        """Return True if a raw reward vector of shape (d,), in declared order, satisfies the rule."""
        return self._holds(rewards)


def parse_rule(text: str, names: Sequence[str]) -> Rule:
    """Parse a rule.

    Args:
        text: The rule.
        names: Names of the reward vector's components, in declared order.

    Raises:
        RuleError: The text is not a rule or names an unknown objective; the message gives the position and what was
            expected.
    """
    if len(text) > _MAX_LENGTH:
        raise RuleError(f"the rule has {len(text)} characters: expected at most {_MAX_LENGTH}", column=_MAX_LENGTH)
    tokens = _tokens(text)
    parser = _Parser(tokens, {name: i for i, name in enumerate(names)}, end=len(text) + 1)
    holds = parser.rule()
    return Rule(text, frozenset(parser.used), tuple(token.text for token in tokens), holds)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text) and not text[position:].isspace():
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            raise RuleError(f"unexpected {text[column - 1]!r} at column {column}", column=column)
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match.group(kind), match.start(kind) + 1))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent parser; every method returns a predicate over the reward vector."""

    def __init__(self, tokens: list[_Token], index: dict[str, int], end: int) -> None:
        self._tokens = tokens
        self._index = index
        self._end = end
        self._at = 0
        self._depth = 0
        self.used: set[str] = set()

    def rule(self) -> Predicate:
        holds = self._disjunction()
        if self._at < len(self._tokens):
            raise self._error("expected 'and', 'or' or the end")
        return holds

    def _disjunction(self) -> Predicate:
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda r: any(part(r) for part in parts)

    def _conjunction(self) -> Predicate:
        parts = [self._factor()]
        while self._take("and"):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else lambda r: all(part(r) for part in parts)

    def _factor(self) -> Predicate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"nested deeper than {_MAX_DEPTH}")
        try:
            if self._take("not"):
                inner = self._factor()
                return lambda r: not inner(r)
            if self._take("("):
                inner = self._disjunction()
                if not self._take(")"):
                    raise self._error("expected ')'")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        name = self._next("word", "the name of an objective, such as " + ", ".join(list(self._index)[:3]))
        if name.text not in self._index:
            known = ", ".join(self._index)
            raise RuleError(
                f"unknown objective {name.text!r} at column {name.column}: expected one of {known}", column=name.column
            )
        sign = self._next("sign", "one of " + " ".join(_OPERATORS))
        if sign.text not in _OPERATORS:
            raise RuleError(f"expected one of {' '.join(_OPERATORS)} at column {sign.column}", column=sign.column)
        number = self._next("number", "a number")
        limit = float(number.text)
        if not math.isfinite(limit):
            raise RuleError(f"{number.text} at column {number.column} is not finite", column=number.column)
        self.used.add(name.text)
        position, compare = self._index[name.text], _OPERATORS[sign.text]
        return lambda r: compare(r[position], limit)

    def _take(self, text: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at].text == text
        self._at += found
        return found

    def _next(self, kind: str, expected: str) -> _Token:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != kind:
            raise self._error(f"expected {expected}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, message: str) -> RuleError:
        column = self._tokens[self._at].column if self._at < len(self._tokens) else self._end
        return RuleError(f"{message} at column {column}", column=column)
