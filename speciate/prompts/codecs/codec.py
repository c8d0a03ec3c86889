"""The protocol of codecs, which translate between problems and the tokens of a tiny model, and their common tokens."""

from typing import Final, Protocol

from speciate.domain.candidate import Individual
from speciate.domain.problem import Problem

ONE: Final = "<one>"
"""Ends a prompt for one answer."""
MANY: Final = "<many>"
"""Ends a prompt for several answers, each closed by ``CLOSE``."""
EDIT: Final = "<edit>"
"""Separates the problem from the answer to change."""
CLOSE: Final = ";"
"""Closes each of several answers."""
_UNUSED: Final = tuple(f"<w{level}>" for level in range(10))

WORDS: Final = (ONE, MANY, EDIT, CLOSE, *_UNUSED)
"""Tokens common to all codecs. The unused ones keep the embeddings of existing checkpoints in place."""


class Codec(Protocol):
    """Encodes a problem as tokens and decodes answers; tokens are separated by single blanks.

    A prompt holds the problem first, for the server's prefix cache, then ``EDIT`` with the parent and its results, if
    there is one, then ``ONE`` or ``MANY``.
    """

    def prompt(self, problem: Problem, *, answers: int, parent: Individual | None = None) -> str:
        """Return the prompt for m = ``answers`` answers, maybe without parent; ``InvalidInputError`` for others."""

    def read(self, text: str, *, answers: int) -> list[str]:
        """Return at most ``answers`` candidates of a completion, in order; unreadable ones as empty texts."""

    def write(self, candidate: str) -> list[str] | None:
        """Return the tokens of a candidate, or None if it cannot be expressed."""


def split_answers(text: str, answers: int) -> list[list[str]]:
    """Return the tokens of each answer in a completion; an unfinished last one counts only if one answer is wanted."""
    tokens = text.split()
    if answers == 1:
        return [tokens[: tokens.index(CLOSE)] if CLOSE in tokens else tokens]
    parts: list[list[str]] = []
    rest: list[str] = []
    for token in tokens:
        if token == CLOSE:
            parts.append(rest)
            rest = []
        else:
            rest.append(token)
    return (parts or [rest])[:answers]
