"""Runs, and the events of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import JsonValue

from speciate.domain.run import RunSpec, RunState
from speciate.ports.records.base import Record
from speciate.ports.records.policies import EnsembleMember


class SpentRecord(Record):
    """What a run has spent and set aside."""

    evaluations: int
    tokens: int
    seconds: float
    reserved_evaluations: int
    reserved_tokens: int


class RunRecord(Record):
    """A run with its progress.

    Attributes:
        name: What people call it; several runs may have the same. Hostile text.
        tags: Words that it shares with other runs.
        note: What is to be known about it. Hostile text.
        policy: The policy that is asked, the first one of several.
        mutator: The policy that changes parents, if it is another one; the first one of several.
        ensembles: The policies of all roles where one of them has several; otherwise empty.
        best: Best value of every objective over all candidates that obey every constraint, by name, in the author's
            units; each may belong to another candidate.
        best_scalar: Best declared weighted sum of these; None when the problem declares no weights.
        failures: Failed candidates by kind.
        reasons: Failed candidates by reason; ``near_duplicate`` are those that the run rejects as too much like others.
        duplicates: Candidates with the result of an earlier one, whose program is the same.
        reused: Candidates with a result that another run had.
        reached: Names of the confirmed targets.
        granted: Evaluations that its campaign lets it spend by now; None for a run of no campaign.
        since_improvement: Evaluations since the archive last improved: the longer, the likelier a plateau.
        alarm: What is failing, when more than half of the latest candidates did.
        pruned_at: When its programs, prompts and completions went, but for those of the archive and of its claims.
        revision: Grows with every commit; the ETag of the run.
    """

    id: UUID
    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    policy: str
    policy_version: int
    mutator_id: UUID | None = None
    mutator: str | None = None
    mutator_version: int | None = None
    ensembles: tuple[EnsembleMember, ...] = ()
    spec: RunSpec
    state: RunState
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    spent: SpentRecord
    candidates: int
    evaluated: int
    failed: int
    duplicates: int
    reused: int = 0
    rollouts: int
    failures: dict[str, int]
    reasons: dict[str, int]
    best: dict[str, float]
    best_scalar: float | None
    reached: tuple[str, ...]
    unlocked: bool
    granted: int | None = None
    since_improvement: int = 0
    alarm: str | None
    pruned_at: datetime | None = None
    last_event: int
    revision: int

    @property
    def share_spent(self) -> float:
        """The largest share of a limit that is spent, from 0 to 1."""
        spent, budget = self.spent, self.spec.budget
        pairs = (
            (spent.evaluations, budget.evaluations),
            (spent.tokens, budget.tokens),
            (spent.seconds, budget.seconds),
        )
        return min(1.0, max(used / limit for used, limit in pairs if limit is not None))

    @property
    def seconds_to_go(self) -> float | None:
        """Seconds until a limit is met if all goes on as so far; None where that cannot be said.

        It cannot before anything is spent, where the run does not go on, and in a campaign, which gives out its budget
        in slices.
        """
        share = self.share_spent
        if self.state is not RunState.RUNNING or self.granted is not None or not share:
            return None
        return self.spent.seconds * (1 - share) / share


class EventRecord(Record):
    """An event of a run; ``seq`` counts from 1 without gaps and is the id of the server-sent event."""

    run_id: UUID
    seq: int
    kind: str
    data: dict[str, JsonValue]
    at: datetime


class WorkRecord(Record):
    """A unit of work that somebody holds, or that waits."""

    work_id: UUID
    run_id: UUID
    kind: str
    state: str
    attempt: int
    lane: int
    lease_seconds_left: float | None


class WorkerProcess(Record):
    """A worker process that is there.

    Attributes:
        slots: Units of work it does at once.
        tier: Containment under which it evaluates candidates; empty when it evaluates none.
    """

    name: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    tier: str


class StrategyRecord(Record):
    """A strategy that runs may use.

    Attributes:
        name: Name in the spec of a run.
        description: One line.
        options: JSON schema of its options.
    """

    name: str
    description: str
    options: dict[str, Any]
