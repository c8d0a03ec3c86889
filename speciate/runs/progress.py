"""Mutable state of a run, and the effects of a transaction on other tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from speciate.domain.budget import Budget, Spent
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Gain
from speciate.domain.run import RunCounters, RunState
from speciate.domain.target import Claim
from speciate.ports.work import WorkKind

ALARM_WINDOW = 64
"""Candidates in the window of the alarm."""
EARLY_ALARM = 16
"""Candidates after which the first alarm is raised if nearly all of them are bad."""


class RunProgress(RunCounters):
    """State and counters of a run.

    A store loads it under a lock, the ledger changes it, and the store writes it back in the same transaction.

    Attributes:
        state: State of the run.
        reason: Why the run is in that state, if that needs an explanation.
        seconds: Running seconds spent up to now.
        evaluations: Evaluations spent.
        tokens: Tokens spent.
        cost: Cost of all completions by the prices of their policies, in US dollars.
        reserved_evaluations: Evaluations that work in flight has reserved.
        reserved_tokens: Tokens that requests in flight have reserved, or had reserved when the run ended.
        granted: Evaluations that a campaign has granted so far; None allows the whole budget.
        numbers: Candidate numbers assigned.
        batches: Batch ordinals assigned.
        live: Work units that are ready or leased.
        failures: Failed candidates by kind.
        reasons: Failed candidates by reason.
        best_number: Number of the best feasible candidate by ``Ranking.merit``, or None before the first.
        best: Its raw rewards, in declared order.
        best_targets: Bit mask of the targets that it meets.
        claimed: Bit mask of the targets that are claimed or confirmed.
        confirmed: Bit mask of the targets that are confirmed.
        recent: Candidates in the current alarm window: ``ok``, ``duplicate``, the reason of an answer that was rejected
            when it was read, or the failure's kind.
        improved_at: Evaluations spent when a batch last improved the archive.
        stopping: Why the run starts no further batch, or None.
        arms: Statistics of each policy of an ensemble, by role and position: fields of ``BanditArm``.
        advice: Statistics of each piece of advice in use, by number: fields of ``Gain``.
        alarm: Message of the alarm, or None.
        streaks: Counts of ``speciate.runs.diagnosis``: ``batches`` and ``programs`` without a score for the evaluator's
            reason, ``unreadable`` answers in a row, ``readable`` after the first readable one, and
            ``repeated_answers:NUMBER`` for answers in a row without a new program.
        diagnosis: Fields of the ``Diagnosis`` that paused the run; empty after it resumes.
        learning: Fields of ``LearningState``; empty if the run does not learn or has no group yet.
        events: Sequence number of the newest event.
        revision: Number of commits.
    """

    state: RunState = RunState.CREATED
    reason: str | None = None
    seconds: float = 0.0
    evaluations: int = 0
    tokens: int = 0
    cost: float = 0.0
    reserved_evaluations: int = 0
    reserved_tokens: int = 0
    granted: int | None = None
    numbers: int = 0
    batches: int = 0
    live: int = 0
    failures: dict[str, int] = Field(default_factory=dict)
    reasons: dict[str, int] = Field(default_factory=dict)
    best_number: int | None = None
    best: list[float] = Field(default_factory=list)
    best_targets: int = 0
    claimed: int = 0
    confirmed: int = 0
    recent: dict[str, int] = Field(default_factory=dict)
    improved_at: int = 0
    stopping: str | None = None
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    advice: dict[str, dict[str, Any]] = Field(default_factory=dict)
    alarm: str | None = None
    streaks: dict[str, int] = Field(default_factory=dict)
    diagnosis: dict[str, Any] = Field(default_factory=dict)
    learning: dict[str, Any] = Field(default_factory=dict)
    events: int = 0
    revision: int = 0

    def spent(self) -> Spent:
        reserved = (self.reserved_evaluations, self.reserved_tokens)
        return Spent(self.evaluations, self.tokens, self.seconds, *reserved, cost=self.cost)

    def evaluations_left(self, budget: Budget) -> int | None:
        """Return the evaluations that may still be reserved, or None without a limit."""
        left = self.spent().evaluations_left(budget)
        if left is None or self.granted is None:
            return left
        return min(left, self.granted - self.evaluations - self.reserved_evaluations)

    def since_improvement(self) -> int:
        return self.evaluations - self.improved_at


@dataclass(frozen=True, slots=True)
class NewWork:
    """A work unit to insert as ready."""

    kind: WorkKind
    lane: int
    ordinal: int
    payload: Mapping[str, Any]
    reserved_evaluations: int = 0


@dataclass(slots=True)
class Effects:
    """Writes of a transaction besides ``RunProgress``."""

    works: list[NewWork] = field(default_factory=list)
    # Claims to insert, or to update if the same target and candidate have one.
    claims: list[Claim] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # events to append, in order
    cancel_rest: bool = False  # true to cancel every other ready or leased unit of the run
    spare_confirmations: bool = False  # true to exclude confirmations from that
    retired: dict[int, Gain] = field(default_factory=dict)  # statistics to add to advice that is out of use, by number

    def extend(self, later: Effects) -> None:
        """Add the effects of a later step of the same transaction."""
        for name in ("works", "claims", "events"):
            getattr(self, name).extend(getattr(later, name))
        self.cancel_rest |= later.cancel_rest
        self.spare_confirmations |= later.spare_confirmations
        self.retired |= later.retired

    def event(self, kind: EventKind, **data: Any) -> None:
        self.events.append(Event(kind, data))
