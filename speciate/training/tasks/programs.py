"""Programs task: Python functions from examples, one reward per example, as problems of kind ``cases``.

A hidden step function maps 0 … 31 to 0 … 9; a policy sees k = 8 pairs of input and output in ascending order. Its
answers are short: if the hidden function has more levels than an answer can have, every answer fails some cases, and
which ones is a trade-off.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.prompts.codecs.programs import INPUTS, LEVELS, ProgramsCodec, python_of, vocabulary
from speciate.training.tasks.task import Content, Split, drawn_problems

CASES: Final = 8
_ALL_CASES: Final = " and ".join(f"case_{i + 1} >= 1" for i in range(CASES))
_DESCRIPTION: Final = "Define solve(x) for integers x from 0 to 31: a step function that agrees with the cases.\n"
_TRIES: Final = 20
_FEW: Final = 4
_CODEC: Final = ProgramsCodec()
_STEP: Final = re.compile(r"(\d+) if x < (\d+) else ")
_LAST: Final = re.compile(r"(\d+)\n$")

Steps = tuple[tuple[int, ...], tuple[int, ...]]
"""Levels and the thresholds between them: the first level whose threshold is above x, else the last one."""


@dataclass(frozen=True)
class ProgramsTask:
    name: str
    hidden: tuple[int, int]
    shown: int

    rewards: ClassVar[tuple[str, ...]] = tuple(f"case_{i + 1}" for i in range(CASES))
    answers: ClassVar[int] = 3
    codec: ClassVar[str | None] = "programs"

    @property
    def max_tokens(self) -> int:
        """Levels and the thresholds between them."""
        return 2 * self.shown - 1

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        for number, content in drawn_problems(self.name, split, count, start, self._draw):
            yield self._problem(f"{self.name}-{split}-{number}", content)

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
        """Return a reward of 1 for every case that a program passes.

        A program that the codec can write is a step function, so its result is computed without running it; a test
        compares the scores with the sandbox's. Any other text scores zero.
        """
        return [[self._passed(problem, text) for text in texts] for problem, texts in batch]

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(CASES)

    def demonstrate(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a step function that passes one case of each of its levels, and others by chance."""
        levels = int(rng.integers(1, self.shown + 1))
        thresholds = np.sort(rng.choice(np.arange(1, INPUTS), size=levels - 1, replace=False))
        cases = cases_of(problem)
        examples = []
        for low, high in pairwise([0, *thresholds.tolist(), INPUTS]):
            inside = [y for x, y in cases if low <= x < high]
            examples.append(inside[int(rng.integers(len(inside)))] if inside else int(rng.integers(LEVELS)))
        return _python((tuple(examples), tuple(thresholds.tolist())))

    def improve(self, problem: Problem, rng: np.random.Generator) -> tuple[str, str] | None:
        """Return a step function with a child one edit away that passes more cases.

        The edit targets a failing case: another level, or a threshold that is added, removed or moved.
        """
        # Parents resemble those of a search: the best of a few demonstrations.
        parent = max((self.demonstrate(problem, rng) for _ in range(_FEW)), key=lambda p: sum(self._passed(problem, p)))
        before = self._passed(problem, parent)
        failing = [case for case, passed in zip(cases_of(problem), before, strict=True) if not passed]
        if not failing:
            return None
        for _ in range(_TRIES):
            child = _python(_edited(_steps(parent), failing, rng, self.shown))
            if sum(self._passed(problem, child)) > sum(before):
                return parent, child
        return None

    def _passed(self, problem: Problem, text: str) -> tuple[float, ...]:
        if _CODEC.write(text) is None:
            return (0.0,) * CASES
        levels, thresholds = _steps(text)
        return tuple(float(_value(levels, thresholds, x) == y) for x, y in cases_of(problem))

    def _draw(self, rng: np.random.Generator) -> Content:
        while True:
            levels = int(rng.integers(self.hidden[0], self.hidden[1] + 1))
            thresholds = np.sort(rng.choice(np.arange(1, INPUTS), size=levels - 1, replace=False)).tolist()
            values = rng.integers(LEVELS, size=levels).tolist()
            inputs = np.sort(rng.choice(INPUTS, size=CASES, replace=False)).tolist()
            outputs = [_value(values, thresholds, x) for x in inputs]
            classes = {sum(x >= limit for limit in thresholds) for x in inputs}
            if all(a != b for a, b in pairwise(values)) and len(classes) == levels:
                return {"cases": [[x, y] for x, y in zip(inputs, outputs, strict=True)]}

    def _problem(self, slug: str, content: Content) -> Problem:
        pairs = content["cases"]
        return Problem.model_validate(
            {
                "slug": slug,
                "title": "A step function from eight examples",
                "description": _DESCRIPTION + "\n".join(f"solve({x}) == {y}" for x, y in pairs),
                "source": "Generated.",
                "kind": "cases",
                "objectives": [{"name": name} for name in self.rewards],
                "weights": dict.fromkeys(self.rewards, 1.0),
                "targets": [{"name": "all_cases", "rule": _ALL_CASES, "unlock": True}],
                "cases": [
                    {"input": [x], "expected": y, "reward": name}
                    for name, (x, y) in zip(self.rewards, pairs, strict=True)
                ],
                "preload": [],
            }
        )


PROGRAMS: Final = ProgramsTask("programs", hidden=(3, 4), shown=3)
PROGRAMS_HARD: Final = ProgramsTask("programs-hard", hidden=(4, 5), shown=5)


def cases_of(problem: Problem) -> list[tuple[int, int]]:
    return [(case.input[0], case.expected) for case in problem.cases]  # type: ignore[misc]  # small integers


def _value(levels: Sequence[int], thresholds: Sequence[int], x: int) -> int:
    return next((level for level, limit in zip(levels, thresholds, strict=False) if x < limit), levels[-1])


def _python(steps: Steps) -> str:
    levels, thresholds = steps
    tokens = [token for level, limit in zip(levels, thresholds, strict=False) for token in (f"y{level}", f"x{limit}")]
    return python_of([*tokens, f"y{levels[-1]}"])


@lru_cache(maxsize=65536)
def _steps(text: str) -> Steps:
    pairs = _STEP.findall(text)
    last = _LAST.search(text)
    assert last is not None  # noqa: S101 - the codec wrote it
    return (*(int(level) for level, _ in pairs), int(last[1])), tuple(int(limit) for _, limit in pairs)


def _edited(steps: Steps, aims: Sequence[tuple[int, int]], rng: np.random.Generator, most: int) -> Steps:
    levels, thresholds = list(steps[0]), list(steps[1])
    x, y = aims[int(rng.integers(len(aims)))]
    at = next((i for i, limit in enumerate(thresholds) if x < limit), len(thresholds))
    edits = ["relabel"] + ["insert"] * (len(levels) < most) + ["move", "delete"] * bool(thresholds)
    match edits[int(rng.integers(len(edits)))]:
        case "relabel":
            levels[at] = y
        case "insert":
            limit = int(rng.integers(1, INPUTS))
            place = sum(limit > other for other in thresholds)
            thresholds.insert(place, limit)
            levels.insert(place + (x >= limit), y)
        case "move":
            beside = [i for i in (at - 1, at) if 0 <= i < len(thresholds)]
            thresholds[beside[int(rng.integers(len(beside)))]] = int(rng.integers(1, INPUTS))
        case _:
            gone = int(rng.integers(len(thresholds)))
            del thresholds[gone]
            del levels[gone + int(rng.integers(2))]
    return tuple(levels), tuple(thresholds)
