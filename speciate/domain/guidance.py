"""Advice that a run writes for its own prompts: whether it does, and what came of each piece.

The meta prompt evolution of AlphaEvolve (arXiv 2506.13131, section 2.2) as a bandit. A piece is drawn by Thompson
sampling (Chapelle and Li, "An empirical evaluation of Thompson sampling", NIPS 2011), in which old results count less
(Raj and Kalyani, "Taming non-stationary bandits: a Bayesian approach", 2017). An answer wins when it takes a place in
the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import Field

from speciate.domain.values import Value

NO_ADVICE: Final = 0
"""Number of the empty piece, which is always among those that are drawn from."""

MAX_ADVICE_CHARS: Final = 1000
"""Longest piece."""


class Guidance(Value):
    """How a run writes advice for its own prompts.

    Attributes:
        every: Batches from one new piece to the next.
        most: Pieces that are kept at once, beside no advice.
    """

    every: int = Field(default=8, ge=1, le=1_000_000, strict=True)
    most: int = Field(default=4, ge=1, le=16, strict=True)


@dataclass(frozen=True, slots=True)
class Gain:
    """What came of the answers to prompts that carried a piece.

    Attributes:
        judged: Answers that have been settled.
        won: Those that took a place in the archive.
        late_judged: The same as ``judged``, halved whenever a piece was written since.
        late_won: The same as ``won``, likewise.
    """

    judged: int = 0
    won: int = 0
    late_judged: float = 0.0
    late_won: float = 0.0

    def plus(self, *, won: bool) -> Gain:
        """Return it with one more answer."""
        return Gain(self.judged + 1, self.won + won, self.late_judged + 1, self.late_won + won)

    def aged(self) -> Gain:
        """Return it with what is late halved."""
        return Gain(self.judged, self.won, self.late_judged / 2, self.late_won / 2)

    @property
    def mean(self) -> float:
        """Mean of the beta distribution that stands for its chance to win; 1/2 where nothing is known."""
        return (1 + self.late_won) / (2 + self.late_judged)


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice.

    Attributes:
        number: Ordinal of the batch that wrote it, or ``NO_ADVICE``.
        text: What it says, a model's words; empty for no advice.
        parent: Number of the piece that it was to improve on.
        gain: What came of it.
    """

    number: int = NO_ADVICE
    text: str = ""
    parent: int = NO_ADVICE
    gain: Gain = Gain()


def draw(pieces: Sequence[Advice], rng: np.random.Generator) -> Advice:
    """Return the piece that the next prompt carries.

    Args:
        pieces: Those that live, shape (k,), in order of number.
        rng: Drawn from k times; not at all where there is only one.
    """
    if len(pieces) == 1:
        return pieces[0]
    won = np.array([piece.gain.late_won for piece in pieces])
    lost = np.array([piece.gain.late_judged for piece in pieces]) - won
    return pieces[int(np.argmax(rng.beta(1 + won, 1 + lost)))]
