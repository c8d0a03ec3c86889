"""Seed programs of a run: the programs that it evaluates first, in place of the problem's seed program."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from speciate.domain.errors import InvalidInputError
from speciate.domain.values import MAX_PROGRAM_BYTES, NAME, RUN_ID, Value, text_digest

MAX_SEEDS: Final = 256
"""Most seed programs of a run: they are one batch."""

MAX_SEED_BYTES: Final = 8 << 20
"""Largest size of a run's seed programs together, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class SeedProgram:
    program: str
    origin: str | None = None
    """``run/number`` of the candidate or name of the file that it was taken from; None for the problem's own."""

    @property
    def digest(self) -> str:
        return text_digest(self.program)


class SeedText(Value):
    program: str = Field(min_length=1, max_length=MAX_PROGRAM_BYTES)
    """Program text; files of a program with many files stand under their headings."""
    name: Annotated[str, StringConstraints(pattern=NAME, max_length=200)] = ""
    """Name of its file, without a folder; empty for none."""


class SeedChoice(StrEnum):
    """Candidates to take from another run."""

    FRONT = "front"
    """The Pareto front, best first."""
    BEST = "best"
    """The best candidate."""


class SeedSource(Value):
    """Another run of the same problem whose candidates become seed programs."""

    run: Annotated[str, StringConstraints(pattern=RUN_ID)]
    """Id of the run."""
    take: SeedChoice = SeedChoice.FRONT
    """Candidates to take."""
    limit: int | None = Field(default=None, ge=1, le=MAX_SEEDS)
    """Most candidates to take from the front, best first; null takes all."""

    @model_validator(mode="after")
    def _limit_has_a_use(self) -> Self:
        if self.limit is not None and self.take is not SeedChoice.FRONT:
            raise ValueError(f"limit: expected only with take {SeedChoice.FRONT.value!r}")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``RUN``, ``RUN:front``, ``RUN:front=N`` or ``RUN:best``."""
        run, _, choice = text.strip().partition(":")
        take, equals, limit = choice.partition("=")
        try:
            return cls.model_validate(
                {"run": run, "take": take or SeedChoice.FRONT, "limit": limit if equals else None}
            )
        except ValidationError:
            raise InvalidInputError(
                f"cannot start from {text.strip()[:80]!r}: expected RUN, RUN:front, RUN:front=N with N up to"
                f" {MAX_SEEDS}, or RUN:best, where RUN is the id of a run."
            ) from None


class SeedRequest(Value):
    """Seed programs of a new run; without any, it starts from the problem's seed program."""

    seeds: tuple[SeedText, ...] = Field(default=(), max_length=MAX_SEEDS)
    """Programs sent with the request."""
    seed_from: tuple[SeedSource, ...] = Field(default=(), max_length=16)
    """Runs of the same problem whose best candidate or front to start from. Their programs are copied when the run is
    created and come after those of `seeds`."""


NO_SEEDS: Final = SeedRequest()
