"""Tournaments and their runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.declaration import DeclarationState
from speciate.domain.tournament import Schedule, Tournament
from speciate.ports.records.base import Record
from speciate.tournaments.report.models import Amendment


class TournamentAmendment(Amendment):
    """An extension as it was made, and when."""

    created_at: datetime


class TournamentRecord(Record):
    """A tournament with its progress.

    Attributes:
        declaration: What was declared; it never changes.
        digest: SHA-256 of the declaration.
        reason: Why it is paused, cancelled or was completed early.
        amendments: Extensions, oldest first.
        planned: Runs of the plan.
        started: Those that were started.
        ended: Those that completed, failed or were cancelled.
        revision: Grows whenever runs are found to have ended.
    """

    id: UUID
    slug: str
    declaration: Tournament
    digest: str
    state: DeclarationState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    amendments: tuple[TournamentAmendment, ...]
    planned: int
    started: int
    ended: int
    revision: int = 0

    @property
    def schedule(self) -> Schedule:
        """What is run in the end."""
        return Schedule.of(self.declaration, [amendment.extension for amendment in self.amendments])


class TournamentRun(Record):
    """A planned run with what it says; None where it has not ended.

    Attributes:
        number: Its place in the plan, from 1.
        policy: Who proposes; several with their weights where it is an ensemble.
        mutator: Who changes parents, if it is another one; alike.
        state: ``planned``, ``under way``, ``completed``, ``failed`` or ``cancelled``.
        reached: Whether it reached the target, confirmed.
        evaluations: Evaluations until it did, or until it ended.
        tokens: The same in tokens.
        score: Best score of the run.
        evaluated: Candidates that were scored.
        failed: Candidates that were not.
        duplicates: Answers that repeated a program of the run.
        diversity: Mean L1 distance between two scored candidates; ``diversity_all`` with failed ones at 0.
        hypervolume: Share of the box that the final front dominates.
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
