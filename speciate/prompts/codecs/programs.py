"""Codec for step functions: cases as pairs of input and output, a program as levels separated by thresholds.

``x3 y5 x19 y1 … <one>`` is a prompt; ``y5 x10 y1`` is the program ``5 if x < 10 else 1``.
"""

import re
from collections.abc import Sequence
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Case, Problem, ProblemKind
from speciate.prompts.codecs.codec import EDIT, MANY, ONE, WORDS, split_answers

INPUTS: Final = 32
"""Inputs are integers from 0 up to this number, exclusive; thresholds are at least 1."""
LEVELS: Final = 10
"""Outputs are integers from 0 up to this number, exclusive."""

_HEAD: Final = "def solve(x):\n    return "
_STEP: Final = re.compile(r"(\d+) if x < (\d+) else ")
_PROGRAM: Final = re.compile(rf"{re.escape(_HEAD)}((?:\d+ if x < \d+ else )*)(\d+)\n")
_ANSWER: Final = re.compile(r"y\d( x([1-9]|[12]\d|3[01]) y\d)*")


class ProgramsCodec:
    """Encodes problems whose cases map one small integer to another."""

    def prompt(self, problem: Problem, *, answers: int, parent: Individual | None = None) -> str:
        tokens = _case_tokens(problem)
        program = None if parent is None else self.write(parent.program)
        if parent is not None and program:
            rewards = parent.rewards or (0.0,) * len(problem.cases)
            tokens += [EDIT, *program, *(passed_token(i, value) for i, value in enumerate(rewards))]
        return " ".join([*tokens, ONE if answers == 1 else MANY])

    def read(self, text: str, *, answers: int) -> list[str]:
        written = (" ".join(tokens) for tokens in split_answers(text, answers))
        return [python_of(tokens.split()) if _ANSWER.fullmatch(tokens) else "" for tokens in written]

    def write(self, candidate: str) -> list[str] | None:
        """Return the tokens of a program as written by ``read``, or None for any other."""
        match = _PROGRAM.fullmatch(candidate)
        if match is None:
            return None
        steps = [token for level, limit in _STEP.findall(match[1]) for token in (f"y{level}", f"x{limit}")]
        tokens = [*steps, f"y{match[2]}"]
        return tokens if _ANSWER.fullmatch(" ".join(tokens)) else None


def python_of(tokens: Sequence[str]) -> str:
    steps = (f"{tokens[i][1:]} if x < {tokens[i + 1][1:]} else " for i in range(0, len(tokens) - 1, 2))
    return f"{_HEAD}{''.join(steps)}{tokens[-1][1:]}\n"


def passed_token(case: int, passed: float) -> str:
    return f"<c{case}{'+' if passed >= 1 else '-'}>"


def vocabulary(cases: int) -> tuple[str, ...]:
    outcomes = [passed_token(case, value) for case in range(cases) for value in (0.0, 1.0)]
    return (*WORDS, *(f"x{i}" for i in range(INPUTS)), *(f"y{i}" for i in range(LEVELS)), *outcomes)


def _case_tokens(problem: Problem) -> list[str]:
    if problem.kind is not ProblemKind.CASES or any(case.hidden or not _is_small(case) for case in problem.cases):
        raise InvalidInputError(
            f"problem {problem.slug!r} does not map one integer below {INPUTS} to one below {LEVELS} in every case,"
            " or hides one, as codec 'programs' requires.",
            remedy="Give the run a problem of 'speciate problems import task:programs', or another policy.",
        )
    return [token for case in problem.cases for token in (f"x{case.input[0]}", f"y{case.expected}")]


def _is_small(case: Case) -> bool:
    return len(case.input) == 1 and _below(case.input[0], INPUTS) and _below(case.expected, LEVELS)


def _below(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
