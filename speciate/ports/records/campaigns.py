"""Campaigns and the slices of their budgets."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState
from speciate.ports.records.base import Record


class CampaignProblem(Record):
    """How a problem of a campaign stands.

    Attributes:
        problem: Its version.
        run_id: Its run; None before its first slice.
        state: State of the run.
        reason: Why it is in that state, when somebody should know.
        granted: Evaluations that it was given so far.
        spent: Those that it has spent.
        slices: How often it was given some.
        reached: Names of its confirmed targets.
        unlocked: Whether the unlock is among them; it takes no more evaluations then.
        gap: Evaluations since its last new target.
        chance: Posterior probability that its next evaluation reaches a new target; 0 when it takes no more.
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


class CampaignRecord(Record):
    """A campaign with its progress.

    Attributes:
        declaration: What was declared; it never changes.
        digest: SHA-256 of the declaration.
        reason: Why it is paused, cancelled or completed.
        spent: Evaluations spent on all problems together.
        slices: Slices handed out.
        unlocked: Problems whose unlock is confirmed.
        problems: How each of them stands, in declared order; empty in lists.
    """

    id: UUID
    slug: str
    declaration: Campaign
    digest: str
    state: DeclarationState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    spent: int
    slices: int
    unlocked: int
    problems: tuple[CampaignProblem, ...] = ()


class SliceRecord(Record):
    """A decision of a campaign: who was given evaluations, what was known then, and what came of it.

    Attributes:
        ord: Its place among the decisions, from 1.
        problem: Who got them.
        evaluations: How many.
        gap: Evaluations since the problem's last new target, as known to the decision.
        chance: Posterior probability of a new target with the next evaluation, as known to the decision.
        spent: Evaluations that were spent; None while the slice is under way.
        reached: Targets that were reached with them and confirmed.
        closed: Why the problem takes no more after it, if so.
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
