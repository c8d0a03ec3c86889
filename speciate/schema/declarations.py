"""Records of declarations: tournaments with their runs, campaigns with their problems and slices."""

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
    id: UUID
    slug: str
    declaration: D
    digest: str
    state: DeclarationState
    reason: str | None
    """Why it is paused, waits, was cancelled or was completed."""
    created_at: datetime
    finished_at: datetime | None


class TournamentAmendment(Amendment):
    created_at: datetime


class TournamentRecord(DeclarationRecord[Tournament]):
    amendments: tuple[TournamentAmendment, ...]
    """Extensions, oldest first."""
    planned: int
    """Runs of the plan."""
    started: int
    ended: int
    """Runs that completed, failed or were cancelled."""
    revision: int = 0
    """Increases whenever ended runs are recorded."""

    @property
    def schedule(self) -> Schedule:
        """All problems and seeds to run, extensions included."""
        return Schedule.of(self.declaration, [amendment.extension for amendment in self.amendments])


class TournamentRun(Record):
    """A planned run with its results; None where it has not ended."""

    tournament: str
    number: int
    """Position in the plan, from 1."""
    problem: str
    seed: int
    entrant: str
    policy: str
    """Policy that proposes; an ensemble as names with weights."""
    mutator: str | None
    """Policy that changes parents if it is another one, likewise."""
    strategy: str
    run_id: UUID | None
    state: str
    """``planned``, ``started``, ``completed``, ``failed`` or ``cancelled``."""
    reason: str | None
    reached: bool | None = None
    """True if a confirmed candidate reached the target."""
    evaluations: int | None = None
    """Evaluations until the target, or until the end of the run."""
    tokens: int | None = None
    """The same in tokens."""
    score: float | None = None
    """Best score of the run; of a noisy problem the mean of its evaluations after the end, a failure as 0."""
    score_margin: float | None = None
    """Half the width of its 95 % interval; None without noise."""
    area: float | None = None
    """Mean over the budgets of the best score so far."""
    spent_evaluations: int | None = None
    spent_tokens: int | None = None
    evaluated: int | None = None
    """Scored candidates."""
    failed: int | None = None
    duplicates: int | None = None
    """Answers that repeated a program of the run."""
    diversity: float | None = None
    """Mean L1 distance between two scored candidates; ``diversity_all`` includes failed ones at 0."""
    diversity_all: float | None = None
    hypervolume: float | None = None
    """Share of the reward box that the final front dominates."""


class CampaignProblem(Record):
    problem: str
    run_id: UUID | None
    """Its run; None before the first slice."""
    state: RunState | None
    reason: str | None
    """Why the run is in that state, if known."""
    granted: int
    spent: int
    slices: int
    reached: tuple[str, ...]
    """Names of the confirmed targets."""
    unlocked: bool
    """True if the unlock is confirmed; the problem then receives no more evaluations."""
    gap: int
    """Evaluations since the last new target."""
    chance: float
    """Posterior probability that the next evaluation reaches a new target; 0 if the problem is closed."""

    @property
    def ended(self) -> bool:
        """True if its run has ended."""
        return self.state is not None and self.state.ended


class CampaignRecord(DeclarationRecord[Campaign]):
    spent: int
    """Evaluations spent on all problems together."""
    slices: int
    unlocked: int
    """Problems with a confirmed unlock."""
    learning: LearningRecord | None = None
    """What its runs learned together; None if it does not learn, and in lists."""
    problems: tuple[CampaignProblem, ...] = ()
    """Progress of each problem, in declared order; empty in lists."""


class SliceRecord(Record):
    """A decision of a campaign: evaluations granted to a problem, the evidence at that time, and the result."""

    ord: int
    """Position among the decisions, from 1."""
    problem: str
    evaluations: int
    gap: int
    """Evaluations since the problem's last new target, when it was decided."""
    chance: float
    """Posterior probability of a new target with the next evaluation, when it was decided."""
    created_at: datetime
    spent: int | None
    """Evaluations spent; None while the slice is open."""
    reached: tuple[str, ...]
    """Confirmed targets that the slice reached."""
    closed: str | None
    """Why the problem receives no more evaluations, if so."""
