"""Records of declarations: tournaments with their runs, campaigns with their problems and slices."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from speciate.domain.campaign import Campaign
from speciate.domain.declaration import Declaration, DeclarationState
from speciate.domain.run import RunState
from speciate.domain.tournament import Schedule, Tournament
from speciate.schema.base import Record
from speciate.schema.runs import LearningRecord
from speciate.tournaments.report.models import Amendment

D = TypeVar("D", bound=Declaration)


class DeclarationRecord(Record, Generic[D]):
    """A declaration with its state.

    Attributes:
        declaration: The immutable declaration.
        digest: SHA-256 of the declaration.
        reason: Why it is paused, waits, was cancelled or was completed.
    """

    id: UUID
    slug: str
    declaration: D
    digest: str
    state: DeclarationState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None


class TournamentAmendment(Amendment):
    """A recorded extension, with its time."""

    created_at: datetime


class TournamentRecord(DeclarationRecord[Tournament]):
    """A tournament with its progress.

    Attributes:
        amendments: Extensions, oldest first.
        planned: Runs of the plan.
        started: Started runs.
        ended: Runs that completed, failed or were cancelled.
        revision: Increases whenever ended runs are recorded.
    """

    amendments: tuple[TournamentAmendment, ...]
    planned: int
    started: int
    ended: int
    revision: int = 0

    @property
    def schedule(self) -> Schedule:
        """All problems and seeds to run, extensions included."""
        return Schedule.of(self.declaration, [amendment.extension for amendment in self.amendments])


class TournamentRun(Record):
    """A planned run with its results; None where it has not ended.

    Attributes:
        number: Position in the plan, from 1.
        policy: Policy that proposes; an ensemble as names with weights.
        mutator: Policy that changes parents if it is another one, likewise.
        state: ``planned``, ``under way``, ``completed``, ``failed`` or ``cancelled``.
        reached: True if a confirmed candidate reached the target.
        evaluations: Evaluations until the target, or until the end of the run.
        tokens: The same in tokens.
        score: Best score of the run.
        evaluated: Scored candidates.
        failed: Candidates that failed.
        duplicates: Answers that repeated a program of the run.
        diversity: Mean L1 distance between two scored candidates; ``diversity_all`` includes failed ones at 0.
        hypervolume: Share of the reward box that the final front dominates.
    """

    tournament: str
    number: int
    problem: str
    seed: int
    entrant: str
    policy: str
    mutator: str | None
    strategy: str
    run_id: UUID | None
    state: str
    reason: str | None
    reached: bool | None = None
    evaluations: int | None = None
    tokens: int | None = None
    score: float | None = None
    spent_evaluations: int | None = None
    spent_tokens: int | None = None
    evaluated: int | None = None
    failed: int | None = None
    duplicates: int | None = None
    diversity: float | None = None
    diversity_all: float | None = None
    hypervolume: float | None = None


class CampaignProblem(Record):
    """Progress of one problem of a campaign.

    Attributes:
        problem: Problem version.
        run_id: Its run; None before the first slice.
        state: State of the run.
        reason: Why the run is in that state, if known.
        granted: Evaluations granted so far.
        spent: Evaluations spent so far.
        slices: Slices granted so far.
        reached: Names of the confirmed targets.
        unlocked: True if the unlock is confirmed; the problem then receives no more evaluations.
        gap: Evaluations since the last new target.
        chance: Posterior probability that the next evaluation reaches a new target; 0 if the problem is closed.
    """

    problem: str
    run_id: UUID | None
    state: RunState | None
    reason: str | None
    granted: int
    spent: int
    slices: int
    reached: tuple[str, ...]
    unlocked: bool
    gap: int
    chance: float

    @property
    def ended(self) -> bool:
        """True if its run has ended."""
        return self.state is not None and self.state.ended


class CampaignRecord(DeclarationRecord[Campaign]):
    """A campaign with its progress.

    Attributes:
        spent: Evaluations spent on all problems together.
        slices: Slices granted.
        unlocked: Problems with a confirmed unlock.
        learning: What its runs learned together; None if it does not learn, and in lists.
        problems: Progress of each problem, in declared order; empty in lists.
    """

    spent: int
    slices: int
    unlocked: int
    learning: LearningRecord | None = None
    problems: tuple[CampaignProblem, ...] = ()


class SliceRecord(Record):
    """A decision of a campaign: evaluations granted to a problem, the evidence at that time, and the result.

    Attributes:
        ord: Position among the decisions, from 1.
        problem: Problem that received the slice.
        evaluations: Evaluations granted.
        gap: Evaluations since the problem's last new target, when it was decided.
        chance: Posterior probability of a new target with the next evaluation, when it was decided.
        spent: Evaluations spent; None while the slice is open.
        reached: Confirmed targets that the slice reached.
        closed: Why the problem receives no more evaluations, if so.
    """

    ord: int
    problem: str
    evaluations: int
    gap: int
    chance: float
    created_at: datetime
    spent: int | None
    reached: tuple[str, ...]
    closed: str | None
