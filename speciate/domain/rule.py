"""The rule language of targets: ``sum_of_radii >= 2.5 and overlap <= 0``.

Grammar (keywords in lower case, optional blanks)::

    rule       = conjunct { "or" conjunct }
    conjunct   = factor { "and" factor }
    factor     = "not" factor | "(" rule ")" | comparison
    comparison = NAME ( ">=" | "<=" | ">" | "<" | "==" | "!=" ) NUMBER

Rules are never evaluated as code; names are resolved to the problem's objectives when a rule is parsed.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple

from speciate.domain.arrays import FloatArray, np
from speciate.domain.errors import RuleError
from speciate.domain.numbers import distinct_numbers

# Each compares two numbers, or an array with a number.
_OPERATORS: Final[dict[str, Callable[[Any, float], Any]]] = {
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
    rf"(?u:\s*)(?:(?P<number>{NUMBER})|(?P<word>[A-Za-z_]\w*)|(?P<sign>>=|<=|==|!=|[<>()]))", re.ASCII
)
_MAX_LENGTH: Final = 10_000
_MAX_DEPTH: Final = 50

_OPPOSITE: Final = {">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}
_LEAST: Final = 1e-9
"""Shortfall of a strict comparison at its limit: nearly met, but not met."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


class Shortfall(NamedTuple):
    """A comparison that a reward vector fails; as text, what is missing."""

    name: str
    value: float
    sign: str
    limit: float
    size: float
    """Distance to the limit in widths of the objective's range, > 0."""

    def __str__(self) -> str:
        limit, value = distinct_numbers(self.limit, self.value)
        return f"{self.name} must be {self.sign} {limit}, is {value}"


@dataclass(frozen=True, slots=True)
class _Comparison:
    name: str
    position: int
    sign: str
    limit: float

    def holds(self, rewards: Sequence[float]) -> bool:
        return bool(_OPERATORS[self.sign](rewards[self.position], self.limit))

    def shortfalls(self, rewards: Sequence[float], widths: Sequence[float]) -> tuple[Shortfall, ...]:
        if self.holds(rewards):
            return ()
        value = rewards[self.position]
        size = max(abs(value - self.limit) / widths[self.position], _LEAST)
        return (Shortfall(self.name, value, self.sign, self.limit, size),)

    def distances(self, rewards: FloatArray, widths: Sequence[float]) -> FloatArray:
        values = rewards[:, self.position]
        missing = np.maximum(np.abs(values - self.limit) / widths[self.position], _LEAST)
        return np.where(_OPERATORS[self.sign](values, self.limit), 0.0, missing)

    def negated(self) -> "_Comparison":
        return _Comparison(self.name, self.position, _OPPOSITE[self.sign], self.limit)


@dataclass(frozen=True, slots=True)
class _Junction:
    """Several parts of which all hold, or at least one."""

    parts: tuple["_Node", ...]
    every: bool

    def holds(self, rewards: Sequence[float]) -> bool:
        return (all if self.every else any)(part.holds(rewards) for part in self.parts)

    def shortfalls(self, rewards: Sequence[float], widths: Sequence[float]) -> tuple[Shortfall, ...]:
        missing = [part.shortfalls(rewards, widths) for part in self.parts]
        return sum(missing, ()) if self.every else min(missing, key=lambda failed: sum(each.size for each in failed))

    def distances(self, rewards: FloatArray, widths: Sequence[float]) -> FloatArray:
        return reduce(np.add if self.every else np.minimum, [part.distances(rewards, widths) for part in self.parts])

    def negated(self) -> "_Junction":
        return _Junction(tuple(part.negated() for part in self.parts), not self.every)


_Node = _Comparison | _Junction


@dataclass(frozen=True)
class Rule:
    """A rule parsed against the names of a reward vector."""

    text: str
    uses: frozenset[str]
    """Names of the objectives that it compares."""
    tokens: tuple[str, ...]
    """Its words, signs and numbers in order."""
    _root: _Node

    def holds(self, rewards: Sequence[float]) -> bool:
        """Return True if a raw reward vector of shape (d,), in declared order, satisfies the rule."""
        return self._root.holds(rewards)

    def shortfalls(self, rewards: Sequence[float], widths: Sequence[float]) -> tuple[Shortfall, ...]:
        """Return the comparisons that fail, with the distance to each limit.

        Of the alternatives of an ``or``, the one with the least sum counts. ``rewards`` are raw, in declared order;
        ``widths``, those of the declared ranges, are the units of the sizes; both have shape (d,).
        """
        return self._root.shortfalls(rewards, widths)

    def parts(self, rewards: Sequence[float], widths: Sequence[float]) -> tuple[float, ...]:
        """Return the sum of shortfalls of each part that ``and`` joins at the top; 0 where a part holds.

        Arguments as for ``shortfalls``.
        """
        root = self._root
        parts = root.parts if isinstance(root, _Junction) and root.every else (root,)
        return tuple(sum(each.size for each in part.shortfalls(rewards, widths)) for part in parts)

    def distances(self, rewards: FloatArray, widths: Sequence[float]) -> FloatArray:
        """Return the sum of the shortfalls of n raw reward vectors: shape (n,), 0 exactly where the rule holds."""
        return self._root.distances(rewards, widths)


def parse_rule(text: str, names: Sequence[str]) -> Rule:
    """Parse a rule over the components of a reward vector, given in declared order.

    Raises:
        RuleError: The text is not a rule or names an unknown objective; the message gives the position and what was
            expected.
    """
    if len(text) > _MAX_LENGTH:
        raise RuleError(f"the rule has {len(text)} characters: expected at most {_MAX_LENGTH}", column=_MAX_LENGTH)
    tokens = _tokens(text)
    parser = _Parser(tokens, {name: i for i, name in enumerate(names)}, end=len(text) + 1)
    root = parser.rule()
    return Rule(text, frozenset(parser.used), tuple(token.text for token in tokens), root)


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
    """Recursive descent parser; every method returns a node of the rule."""

    def __init__(self, tokens: list[_Token], index: dict[str, int], end: int) -> None:
        self._tokens = tokens
        self._index = index
        self._end = end
        self._at = 0
        self._depth = 0
        self.used: set[str] = set()

    def rule(self) -> _Node:
        root = self._disjunction()
        if self._at < len(self._tokens):
            raise self._error("expected 'and', 'or' or the end")
        return root

    def _disjunction(self) -> _Node:
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else _Junction(tuple(parts), every=False)

    def _conjunction(self) -> _Node:
        parts = [self._factor()]
        while self._take("and"):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else _Junction(tuple(parts), every=True)

    def _factor(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"nested deeper than {_MAX_DEPTH}")
        try:
            if self._take("not"):
                return self._factor().negated()
            if self._take("("):
                inner = self._disjunction()
                if not self._take(")"):
                    raise self._error("expected ')'")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> _Node:
        name = self._next("word", "the name of an objective, such as " + ", ".join(list(self._index)[:3]))
        if name.text not in self._index:
            names = ", ".join(self._index)
            raise RuleError(
                f"unknown objective {name.text!r} at column {name.column}: expected one of {names}", column=name.column
            )
        sign = self._next("sign", "one of " + " ".join(_OPERATORS))
        if sign.text not in _OPERATORS:
            raise RuleError(f"expected one of {' '.join(_OPERATORS)} at column {sign.column}", column=sign.column)
        number = self._next("number", "a number")
        limit = float(number.text)
        if not math.isfinite(limit):
            raise RuleError(f"{number.text} at column {number.column} is not finite", column=number.column)
        self.used.add(name.text)
        return _Comparison(name.text, self._index[name.text], sign.text, limit)

    def _take(self, text: str) -> bool:
        matches = self._at < len(self._tokens) and self._tokens[self._at].text == text
        self._at += matches
        return matches

    def _next(self, kind: str, expected: str) -> _Token:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != kind:
            raise self._error(f"expected {expected}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, message: str) -> RuleError:
        column = self._tokens[self._at].column if self._at < len(self._tokens) else self._end
        return RuleError(f"{message} at column {column}", column=column)
