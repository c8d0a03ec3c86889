"""What every codec provides: the language in which a task speaks with models too small for English."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from speciate.domain.candidate import Individual
from speciate.domain.problem import Problem

ONE: Final = "<one>"
"""Ends a prompt that asks for one answer."""
MANY: Final = "<many>"
"""Ends a prompt that asks for several answers, each of them closed by ``CLOSE``."""
EDIT: Final = "<edit>"
"""Stands between the problem and the answer that is to be changed."""
CLOSE: Final = ";"
"""Closes each of several answers."""
GOALS: Final = tuple(f"<w{level}>" for level in range(10))
"""How a weighting is written into a prompt: one token for each reward, in tenths."""

WORDS: Final = (ONE, MANY, EDIT, CLOSE, *GOALS)
"""The tokens that all codecs share."""


class Codec(Protocol):
    """Writes a problem as tokens and reads answers; tokens are separated by single blanks.

    A prompt holds the problem first, so that a server's prefix cache serves all its prompts, then ``EDIT`` with the
    parent and how it fared, if there is one, then ``ONE`` or ``MANY``.
    """

    def prompt(
        self, problem: Problem, *, answers: int, parent: Individual | None = None, goal: Sequence[float] | None = None
    ) -> str:
        """Return the prompt.

        Args:
            problem: The problem.
            answers: m, how many answers are asked for in one completion.
            parent: The candidate to change. One that these tokens cannot express is left out.
            goal: Shape (k,): the weighting to aim for, summing to 1, or None.

        Raises:
            InvalidInputError: The problem is not one of this task.
        """
        ...

    def read(self, text: str, *, answers: int) -> list[str]:
        """Return the candidates of a completion, in order, at most ``answers``; unreadable ones as empty texts."""
        ...

    def write(self, candidate: str) -> list[str] | None:
        """Return the tokens of a candidate, or None when there are none for it."""
        ...


def goal_tokens(goal: Sequence[float] | None) -> list[str]:
    """Return the tokens of a weighting."""
    return [] if goal is None else [GOALS[min(9, int(10 * weight))] for weight in goal]


def split_answers(text: str, answers: int) -> list[list[str]]:
    """Return the tokens of each answer of a completion; of an unfinished last one, too, when only one is wanted."""
    tokens = text.split()
    if answers == 1:
        return [tokens[: tokens.index(CLOSE)] if CLOSE in tokens else tokens]
    found: list[list[str]] = []
    rest: list[str] = []
    for token in tokens:
        if token == CLOSE:
            found.append(rest)
            rest = []
        else:
            rest.append(token)
    return (found or [rest])[:answers]
