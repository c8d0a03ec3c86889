"""What a form is told when what it sent cannot be used: it comes back as it was filled in, with its flaws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from speciate.domain.errors import Flaw, InvalidInputError, SpeciateError
from speciate.domain.wording import wording

_AROUND: Final = 2


@dataclass(frozen=True)
class Excerpt:
    """Lines around a flaw: number, text and whether it is the flawed one."""

    flaw: Flaw
    lines: Sequence[tuple[int, str, bool]]


@dataclass(frozen=True)
class Refusal:
    """Why a form was refused.

    Attributes:
        title: In few words.
        message: In a sentence or two.
        flaws: Where and why.
    """

    title: str
    message: str
    flaws: tuple[Flaw, ...]

    def of(self, name: str) -> str:
        """Return what is wrong with a field, or the empty string."""
        return "; ".join(flaw.message for flaw in self.flaws if flaw.where == name)


def refusal(error: SpeciateError | ValidationError) -> Refusal:
    """Return what a form is told of an error."""
    if isinstance(error, ValidationError):
        flaws = tuple(
            Flaw(wording(dict(each)), where=".".join(str(part) for part in each["loc"]))
            for each in error.errors(include_url=False, include_input=False)
        )
        return Refusal("This cannot be started", "Some values do not fit:", flaws)
    return Refusal(error.title, str(error), error.flaws if isinstance(error, InvalidInputError) else ())


def excerpts(told: Refusal, texts: Mapping[str, str]) -> list[Excerpt]:
    """Return the lines around every flaw whose file and line are known.

    Args:
        told: Names files and lines.
        texts: The files by name.
    """
    found = []
    for flaw in told.flaws[:20]:
        if flaw.line is None or flaw.file is None or flaw.file not in texts:
            continue
        lines = texts[flaw.file].split("\n")
        first, last = max(1, flaw.line - _AROUND), min(len(lines), flaw.line + _AROUND)
        found.append(Excerpt(flaw, [(n, lines[n - 1][:500], n == flaw.line) for n in range(first, last + 1)]))
    return found
