"""Mutable state of a run, and what a transaction changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import Field

from speciate.domain.budget import Budget
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Gain
from speciate.domain.run import RunCounters, RunState
from speciate.domain.target import Claim, TargetSet
from speciate.ports.work import RunContext, WorkKind

ALARM_WINDOW = 64
"""Candidates in the window of the alarm."""
_ROUNDING: Final = 1e-9
"""Share of a budget of dollars that counts as spent: sums of floats are not exact."""
EARLY_ALARM = 16
"""Candidates after which the first alarm is raised if nearly all of them are bad."""


class RunProgress(RunCounters):
    """State and counters of a run.

    A store loads it under a lock, the ledger changes it, and the store writes it back in the same transaction.
    """

    state: RunState = RunState.CREATED  # state of the run
    reason: str | None = None  # why the run is in that state, if that needs an explanation
    seconds: float = 0.0  # running seconds spent up to now
    evaluations: int = 0  # evaluations spent
    tokens: int = 0  # tokens spent
    cost: float = 0.0  # cost of all completions by the prices of their policies, in US dollars
    dearest: float | None = None  # US dollars of the dearest answer of an agent; None before the first
    reserved_evaluations: int = 0  # evaluations that work in flight has reserved
    reserved_tokens: int = 0  # tokens that requests in flight have reserved, or had reserved when the run ended
    granted: int | None = None  # evaluations that a campaign has granted so far; None allows the whole budget
    numbers: int = 0  # candidate numbers assigned
    batches: int = 0  # batch ordinals assigned
    live: int = 0  # work units that are ready, leased or parked
    lanes: int = 0  # lanes opened since the run last began
    failures: dict[str, int] = Field(default_factory=dict)  # failed candidates by kind
    reasons: dict[str, int] = Field(default_factory=dict)  # failed candidates by reason
    # Number of the best feasible candidate by ``Ranking.merit``, or None before the first.
    best_number: int | None = None
    best: list[float] = Field(default_factory=list)  # its raw rewards, in declared order
    best_targets: TargetSet = 0  # those that it meets
    claimed: TargetSet = 0  # those that are claimed or confirmed
    confirmed: TargetSet = 0
    # Candidates in the current alarm window: ``ok``, ``duplicate``, the reason of an answer that was rejected when it
    # was read, or the failure's kind.
    recent: dict[str, int] = Field(default_factory=dict)
    improved_at: int = 0  # evaluations spent when a batch last improved the archive
    stopping: str | None = None  # why the run starts no further batch, or None
    # Statistics of each policy of an ensemble, by role and position: fields of ``BanditArm``.
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    # Statistics of each piece of advice in use, by number: fields of ``Gain``.
    advice: dict[str, dict[str, Any]] = Field(default_factory=dict)
    alarm: str | None = None  # message of the alarm, or None
    # Counts of ``speciate.runs.stopping``: ``batches`` and ``programs`` without a score for the evaluator's reason,
    # ``unreadable`` answers in a row, ``readable`` after the first readable one, and ``repeated_answers:NUMBER`` for
    # answers in a row without a new program.
    streaks: dict[str, int] = Field(default_factory=dict)
    # Fields of the ``Diagnosis`` that paused the run; empty after it resumes.
    diagnosis: dict[str, Any] = Field(default_factory=dict)
    # Fields of ``LearningState``; empty if the run does not learn or has no group yet.
    learning: dict[str, Any] = Field(default_factory=dict)
    # Repeated evaluations of programs with noisy rewards, by the beginning of the program's hash.
    trials: dict[str, int] = Field(default_factory=dict)
    final: dict[str, Any] = Field(default_factory=dict)  # fields of ``FinalValue``; empty before the end
    events: int = 0  # sequence number of the newest event
    revision: int = 0  # number of commits

    def evaluations_left(self, budget: Budget) -> int | None:
        """Return the evaluations that may still be reserved, or None without a limit."""
        if budget.evaluations is None:
            return None
        most = budget.evaluations if self.granted is None else min(budget.evaluations, self.granted)
        return max(0, most - self.evaluations - self.reserved_evaluations)

    def tokens_left(self, budget: Budget) -> int | None:
        return None if budget.tokens is None else max(0, budget.tokens - self.tokens - self.reserved_tokens)

    def seconds_left(self, budget: Budget) -> float | None:
        return None if budget.seconds is None else max(0.0, budget.seconds - self.seconds)

    def dollars_left(self, context: RunContext) -> float | None:
        """Return the US dollars left, or None without a limit; those of agents in flight are not known."""
        if (most := context.spec.budget.dollars) is None:
            return None
        left = most - self.cost - self.reserved_tokens * context.token_price
        return left if left > _ROUNDING * most else 0.0

    def affords(self, context: RunContext, tokens: int, agent_answers: int = 0, own_answers: int = 0) -> bool:
        """Return True if the budget holds requests of a unit that awaits ``own_answers``, some of them by agents.

        A token costs ``RunContext.token_price``, and an answer of an agent as much as the dearest so far. Before the
        first bill, a budget of dollars holds one answer.
        """
        tokens_left, dollars_left = self.tokens_left(context.spec.budget), self.dollars_left(context)
        if tokens_left is not None and tokens > tokens_left:
            return False
        if dollars_left is None or not tokens:
            return True
        cost = tokens * context.token_price
        if not context.bills_afterwards:
            return cost <= dollars_left
        awaited = self.reserved_evaluations - (self.numbers - self.evaluations)  # by all ``generate`` units
        answers = agent_answers + max(0, awaited - own_answers)
        if self.dearest is None:
            return dollars_left > 0 and answers <= 1
        return 0 < dollars_left >= (cost + answers * self.dearest) * (1 - _ROUNDING)

    def since_improvement(self) -> int:
        return self.evaluations - self.improved_at


@dataclass(frozen=True, slots=True)
class NewWork:
    kind: WorkKind
    lane: int
    ordinal: int
    payload: Mapping[str, Any]
    reserved_evaluations: int = 0


@dataclass(slots=True)
class RunChange:
    """A transaction on a run: ``progress`` is changed in place, the other fields collect what to write besides it."""

    progress: RunProgress
    works: list[NewWork] = field(default_factory=list)
    # Claims to insert, or to update if the same target and candidate have one.
    claims: list[Claim] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # events to append, in order
    cancel_rest: bool = False  # true to cancel every other ready or leased unit of the run
    spare_confirmations: bool = False  # true to exclude confirmations from that
    retired: dict[int, Gain] = field(default_factory=dict)  # statistics to add to advice that is out of use, by number

    def event(self, kind: EventKind, **data: Any) -> None:
        self.events.append(Event(kind, data))
