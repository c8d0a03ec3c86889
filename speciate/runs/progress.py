"""The one mutable row of a run: its state and its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speciate.domain.budget import Budget, Spent
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Gain
from speciate.domain.run import RunState
from speciate.domain.target import Claim
from speciate.ports.work import WorkKind

ALARM_WINDOW = 64
"""Candidates over which the share of failures is judged."""


@dataclass(slots=True)
class RunProgress:
    """Where a run is. Loaded under a lock, changed by the ledger, written back in the same transaction.

    Attributes:
        state: State of the run.
        reason: Why it is in that state, when somebody should know.
        seconds: Running seconds spent, up to now.
        evaluations: Evaluations spent.
        tokens: Tokens spent.
        reserved_evaluations: Evaluations set aside by work in flight.
        reserved_tokens: Tokens set aside by requests in flight; of a run that has ended, by those that were then.
        granted: Evaluations that it may spend by now, where a campaign hands them out; None is the whole budget.
        numbers: Candidate numbers given out.
        batches: Batch ordinals given out.
        live: Units of work that are ready or leased.
        evaluated: Candidates with rewards, duplicates included.
        failed: Candidates without.
        duplicates: Candidates whose program the run had seen before; near-duplicates are rejected and no part of them.
        reused: Candidates with a result of another run.
        rollouts: Completions booked.
        failures: Failed candidates by kind.
        reasons: Failed candidates by reason.
        best: Best raw value per objective of candidates that obey every constraint, in declared order; empty before
            the first.
        best_scalar: Best declared weighted sum of these.
        claimed: Bit mask of the targets that are claimed or confirmed.
        confirmed: Bit mask of the targets that are confirmed.
        recent: Candidates in the current alarm window, by outcome ("ok" or the failure's kind).
        improved_at: Evaluations spent when a batch last took a place in the archive.
        stopping: Why nothing more is asked for, or None.
        arms: Counts of each policy of an ensemble (``speciate.domain.ensemble.BanditArm``), by role and position.
        advice: What came of each piece of advice that lives, by number: counts of ``speciate.domain.guidance.Gain``.
        alarm: What is failing, or None.
        events: Sequence number of the newest event.
        revision: Commits so far.
    """

    state: RunState = RunState.CREATED
    reason: str | None = None
    seconds: float = 0.0
    evaluations: int = 0
    tokens: int = 0
    reserved_evaluations: int = 0
    reserved_tokens: int = 0
    granted: int | None = None
    numbers: int = 0
    batches: int = 0
    live: int = 0
    evaluated: int = 0
    failed: int = 0
    duplicates: int = 0
    reused: int = 0
    rollouts: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    best: list[float] = field(default_factory=list)
    best_scalar: float | None = None
    claimed: int = 0
    confirmed: int = 0
    recent: dict[str, int] = field(default_factory=dict)
    improved_at: int = 0
    stopping: str | None = None
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    advice: dict[str, dict[str, float]] = field(default_factory=dict)
    alarm: str | None = None
    events: int = 0
    revision: int = 0

    def spent(self) -> Spent:
        """Return what is spent and set aside."""
        return Spent(self.evaluations, self.tokens, self.seconds, self.reserved_evaluations, self.reserved_tokens)

    def evaluations_left(self, budget: Budget) -> int | None:
        """Return how many evaluations can be reserved by now, or None without a limit."""
        left = self.spent().evaluations_left(budget)
        if left is None or self.granted is None:
            return left
        return min(left, self.granted - self.evaluations - self.reserved_evaluations)

    def since_improvement(self) -> int:
        """Return the evaluations since the archive last improved."""
        return self.evaluations - self.improved_at


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
