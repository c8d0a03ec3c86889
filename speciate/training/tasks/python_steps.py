"""Steps of the task ``python``: each is a phrase in English and the expression that does it.

The expression is both the reference solution and what computes the expected results, so the two cannot differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

NUMBER, LIST, TEXT = "an integer", "a list of integers", "a text"


@dataclass(frozen=True, slots=True)
class Step:
    phrase: str
    """What to do, with ``{k}`` for its number."""
    expression: str
    """Python over ``x``, with ``{k}`` for its number."""
    takes: str
    gives: str
    numbers: tuple[int, ...] = (0,)


STEPS: Final = (
    Step("add {k} to it", "x + {k}", NUMBER, NUMBER, tuple(range(2, 30))),
    Step("multiply it by {k}", "x * {k}", NUMBER, NUMBER, tuple(range(2, 10))),
    Step("take the remainder of its division by {k}", "x % {k}", NUMBER, NUMBER, tuple(range(3, 14))),
    Step("square it", "x * x", NUMBER, NUMBER),
    Step("take its absolute value", "abs(x)", NUMBER, NUMBER),
    Step("take the sum of its decimal digits", "sum(int(d) for d in str(abs(x)))", NUMBER, NUMBER),
    Step("count the ones in its binary form", 'bin(abs(x)).count("1")', NUMBER, NUMBER),
    Step("keep the larger of it and {k}", "max(x, {k})", NUMBER, NUMBER, tuple(range(5, 60, 5))),
    Step("write it in decimal", "str(x)", NUMBER, TEXT),
    Step("keep the even numbers", "[v for v in x if v % 2 == 0]", LIST, LIST),
    Step("keep the numbers greater than {k}", "[v for v in x if v > {k}]", LIST, LIST, tuple(range(-4, 9))),
    Step("square each number", "[v * v for v in x]", LIST, LIST),
    Step("multiply each number by {k}", "[v * {k} for v in x]", LIST, LIST, tuple(range(2, 10))),
    Step("add {k} to each number", "[v + {k} for v in x]", LIST, LIST, tuple(range(2, 20))),
    Step("reverse the list", "x[::-1]", LIST, LIST),
    Step("sort the list in ascending order", "sorted(x)", LIST, LIST),
    Step("keep only the first occurrence of each number", "list(dict.fromkeys(x))", LIST, LIST),
    Step("replace each number by the sum up to it", "[sum(x[: i + 1]) for i in range(len(x))]", LIST, LIST),
    Step("keep every second number, beginning with the first", "x[::2]", LIST, LIST),
    Step("take the differences of neighbours, later minus earlier", "[b - a for a, b in zip(x, x[1:])]", LIST, LIST),
    Step("keep the first {k} numbers", "x[:{k}]", LIST, LIST, tuple(range(2, 6))),
    Step("take the sum of the numbers", "sum(x)", LIST, NUMBER),
    Step("take the largest number, or 0 if there is none", "max(x, default=0)", LIST, NUMBER),
    Step("count the negative numbers", "sum(v < 0 for v in x)", LIST, NUMBER),
    Step("count the different numbers", "len(set(x))", LIST, NUMBER),
    Step("join the numbers with hyphens", '"-".join(str(v) for v in x)', LIST, TEXT),
    Step("reverse the text", "x[::-1]", TEXT, TEXT),
    Step("change it to upper case", "x.upper()", TEXT, TEXT),
    Step("remove the vowels a, e, i, o and u", '"".join(c for c in x if c.lower() not in "aeiou")', TEXT, TEXT),
    Step("double each character", '"".join(c + c for c in x)', TEXT, TEXT),
    Step("keep every second character, beginning with the first", "x[::2]", TEXT, TEXT),
    Step("sort its characters", '"".join(sorted(x))', TEXT, TEXT),
    Step("remove the spaces", 'x.replace(" ", "")', TEXT, TEXT),
    Step("keep its first {k} characters", "x[:{k}]", TEXT, TEXT, tuple(range(2, 9))),
    Step("put its words in reverse order", '" ".join(x.split()[::-1])', TEXT, TEXT),
    Step("count its vowels a, e, i, o and u", 'sum(c in "aeiouAEIOU" for c in x)', TEXT, NUMBER),
    Step("take its length", "len(x)", TEXT, NUMBER),
    Step("count its different characters", "len(set(x))", TEXT, NUMBER),
    Step("list the lengths of its words", "[len(w) for w in x.split()]", TEXT, LIST),
)
"""All steps; the numbers of a step make no other step."""

_WORDS: Final = ("sand", "Apple", "tree", "io", "Bee", "queue", "x", "rhythm", "Ocean", "lamp", "noon", "Area")

Chain = tuple[tuple[int, int], ...]
"""Steps by their position in ``STEPS``, each with its number k."""


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> Callable[[Any], Any]:
    # Only expressions of STEPS get here.
    function: Callable[[Any], Any] = eval(f"lambda x: {expression}")  # noqa: S307
    return function


def run(chain: Chain, value: Any) -> Any:
    for step, k in chain:
        value = _compiled(STEPS[step].expression.format(k=k))(value)
    return value


def phrases(chain: Chain) -> list[str]:
    return [STEPS[step].phrase.format(k=k) for step, k in chain]


def solution(chain: Chain) -> str:
    lines = [f"    x = {STEPS[step].expression.format(k=k)}\n" for step, k in chain]
    return "def solve(x):\n" + "".join(lines) + "    return x\n"


def draw_chain(kind: str, length: int, rng: np.random.Generator) -> Chain:
    chain: list[tuple[int, int]] = []
    for _ in range(length):
        fitting = [i for i, step in enumerate(STEPS) if step.takes == kind]
        step = fitting[int(rng.integers(len(fitting)))]
        numbers = STEPS[step].numbers
        chain.append((step, numbers[int(rng.integers(len(numbers)))]))
        kind = STEPS[step].gives
    return tuple(chain)


def draw_inputs(kind: str, count: int, rng: np.random.Generator) -> list[Any]:
    values: list[Any] = []
    while len(values) < count:
        value = _input(kind, rng)
        if value not in values:
            values.append(value)
    return values


def _input(kind: str, rng: np.random.Generator) -> Any:
    if kind == NUMBER:
        return int(rng.integers(-60, 200))
    if kind == LIST:
        return rng.integers(-9, 20, size=int(rng.integers(0, 9))).tolist()
    return " ".join(_WORDS[i] for i in rng.integers(len(_WORDS), size=int(rng.integers(1, 5))))


def behaviour(chain: Chain, inputs: Sequence[Any]) -> list[Any]:
    """Return the results for inputs: chains with equal results on many inputs count as one function."""
    return [run(chain, value) for value in inputs]
