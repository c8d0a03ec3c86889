"""What a transaction writes besides the counters of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Gain
from speciate.domain.target import Claim
from speciate.ports.work import WorkKind


@dataclass(frozen=True, slots=True)
class NewWork:
    """A unit of work to insert as ready."""

    kind: WorkKind
    lane: int
    ordinal: int
    payload: Mapping[str, Any]
    reserved_evaluations: int = 0


@dataclass(slots=True)
class Effects:
    """What a transaction writes besides ``Progress``.

    Attributes:
        works: Units of work to insert.
        claims: Claims to insert, or to update when one of this target and candidate exists.
        events: Events to append, in order.
        cancel_rest: Whether every other ready or leased unit of the run is cancelled.
        spare_confirmations: Whether confirmations are left out of that.
        retired: Advice that prompts no longer carry, by number: what to add to what came of it.
    """

    works: list[NewWork] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cancel_rest: bool = False
    spare_confirmations: bool = False
    retired: dict[int, Gain] = field(default_factory=dict)

    def event(self, kind: EventKind, **data: Any) -> None:
        """Append an event."""
        self.events.append(Event(kind, data))
