"""Guidance: advice that a run writes for its own prompts, selected by a bandit.

The meta prompt evolution of AlphaEvolve (arXiv 2506.13131, section 2.2). A piece of advice is drawn by Thompson
sampling (Chapelle and Li, "An empirical evaluation of Thompson sampling", NIPS 2011) with decaying counts (Raj and
Kalyani, "Taming non-stationary bandits: a Bayesian approach", 2017). An answer wins if it enters the archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from speciate.domain.arrays import np
from speciate.domain.documented import Flag
from speciate.domain.values import Value

NO_ADVICE: Final = 0
"""Number of the empty piece, which is always among the candidates of a draw."""

MAX_ADVICE_CHARS: Final = 1000
"""Longest piece."""


class Guidance(Value):
    every: Annotated[int, Flag("--guidance", metavar="BATCHES")] = Field(default=8, ge=1, le=1_000_000, strict=True)
    """Batches after which the policy writes a new piece of advice for its own prompts."""
    most: int = Field(default=4, ge=1, le=16, strict=True)
    """Most pieces of advice kept at the same time, besides none."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Results of the answers to prompts with a piece of advice."""

    judged: int = 0
    won: int = 0
    late_judged: float = 0.0
    """``judged``, halved whenever a new piece was written."""
    late_won: float = 0.0
    """``won``, halved likewise."""

    def plus(self, *, won: bool) -> "Gain":
        return Gain(self.judged + 1, self.won + won, self.late_judged + 1, self.late_won + won)

    def aged(self) -> "Gain":
        return Gain(self.judged, self.won, self.late_judged / 2, self.late_won / 2)

    @property
    def mean(self) -> float:
        """Mean of the beta distribution of the chance to win; 1/2 without data."""
        return (1 + self.late_won) / (2 + self.late_judged)


@dataclass(frozen=True, slots=True)
class Advice:
    number: int = NO_ADVICE
    """Number of the batch that wrote it, or ``NO_ADVICE``."""
    text: str = ""
    """Text written by a model; empty for no advice."""
    parent: int = NO_ADVICE
    """Number of the piece that it improves on."""
    gain: Gain = Gain()


def draw(pieces: Sequence[Advice], rng: "np.random.Generator") -> Advice:
    """Draw the piece for the next prompt; ``rng`` draws once for each piece, not at all for a single one."""
    if len(pieces) == 1:
        return pieces[0]
    won = np.array([piece.gain.late_won for piece in pieces])
    lost = np.array([piece.gain.late_judged for piece in pieces]) - won
    return pieces[int(np.argmax(rng.beta(1 + won, 1 + lost)))]
