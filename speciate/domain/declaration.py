"""Declarations (tournaments and campaigns): immutable descriptions of work that then runs by itself.

Every kind of declaration shares this lifecycle: *running* until its controller completes it; a client may pause,
resume or cancel it.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Final, Self

from pydantic import Field, model_validator

from speciate.domain.entrant import Named
from speciate.domain.errors import ConflictError
from speciate.domain.values import Digested, Slug


class DeclarationKind(StrEnum):
    TOURNAMENT = "tournament"
    CAMPAIGN = "campaign"


class DeclarationState(StrEnum):
    """State of a declaration; its controller moves its runs to the same state."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in {DeclarationState.COMPLETED, DeclarationState.CANCELLED}


VERBS: Final = {
    "pause": DeclarationState.PAUSED,
    "resume": DeclarationState.RUNNING,
    "cancel": DeclarationState.CANCELLED,
}
"""The verbs of the API, the command line and the dashboard, with the state each requests."""

_TRANSITIONS: Final = {
    DeclarationState.RUNNING: frozenset({DeclarationState.PAUSED, DeclarationState.CANCELLED}),
    DeclarationState.PAUSED: frozenset({DeclarationState.RUNNING, DeclarationState.CANCELLED}),
}


def check_transition(kind: DeclarationKind, slug: str, source: DeclarationState, goal: DeclarationState) -> None:
    """Raise ``ConflictError`` unless clients may request a transition; only the controller completes a declaration."""
    allowed = _TRANSITIONS.get(source, frozenset())
    if goal not in allowed:
        why = f"expected {' or '.join(sorted(allowed))}" if allowed else "it has ended"
        raise ConflictError(f"{kind} {slug!r} is {source} and cannot become {goal}: {why}.")


def paused_with(kind: DeclarationKind, slug: str) -> str:
    """Return the reason of a run that was paused with its declaration and resumes with it."""
    return f"{kind} {slug} is paused"


def refuse_repeated(noun: str, items: Iterable[object]) -> None:
    if (most := Counter(items).most_common(1)) and most[0][1] > 1:
        raise ValueError(f"{noun} {most[0][0]!r} is named twice: expected each once")


class Declaration(Digested):
    """Fields that every kind of declaration has."""

    kind: ClassVar[DeclarationKind]

    slug: Slug
    """Name; it cannot be used again."""
    title: str = Field(default="", max_length=200)
    """One-line description."""
    problems: tuple[Named, ...] = Field(min_length=1, max_length=10_000)
    """Problems to solve, each once."""

    @property
    def doubt(self) -> str:
        """Reason to ask before the start; empty without one. The problems are named one by one."""
        return ""

    @model_validator(mode="after")
    def _problems_are_distinct(self) -> Self:
        refuse_repeated("problem", self.problems)
        return self
