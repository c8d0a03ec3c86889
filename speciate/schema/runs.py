"""Records of runs, their events, their work units and the workers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field, JsonValue

from speciate.domain.diagnosis import Diagnosis
from speciate.domain.problem import Problem
from speciate.domain.run import RunCounters, RunSpec, RunState
from speciate.schema.base import HideableRecord, Record
from speciate.schema.policies import EnsembleMember


class RunOrder(StrEnum):
    """Orders of the list of runs: names from A to Z, active states first, times and amounts from the largest."""

    STARTED = "started"
    STATE = "state"
    PROBLEM = "problem"
    POLICY = "policy"
    BEST = "best"
    """By the best candidate: those that meet the unlock target, then more targets, then harder ones."""
    DURATION = "duration"
    EVALUATIONS = "evaluations"
    TOKENS = "tokens"
    COST = "cost"

    @property
    def ascending(self) -> bool:
        """True if the list begins with the smallest value."""
        return self in {RunOrder.STATE, RunOrder.PROBLEM, RunOrder.POLICY}


class SpentRecord(Record):
    """Budget that a run has spent, and what its work in flight has reserved.

    Attributes:
        cost: Cost of its completions in US dollars; 0 if its policies declare no price.
    """

    evaluations: int
    tokens: int
    seconds: float
    cost: float = 0.0
    reserved_evaluations: int
    reserved_tokens: int


class SourceRun(Record):
    """A run from which another took seed programs, or from which that one did, with what it had spent by then.

    Attributes:
        run: The run.
        seconds: Running seconds.
    """

    run: UUID
    evaluations: int
    tokens: int
    seconds: float


class RunSetup(Record):
    """Setup and labels of a run.

    Attributes:
        name: Name given by a user; several runs may have the same. Untrusted text.
        tags: Tags shared with other runs.
        note: Remarks of a user. Untrusted text.
        policy: The proposing policy, the first one of an ensemble.
        mutator: The policy that changes parents, if it is another one; the first one of an ensemble.
        ensembles: The policies of all roles if one of them has several; otherwise empty.
        seeds: Number of seed programs that it was given; 0 if it starts from the problem's.
        sources: Runs that seed programs were taken from, and the sources of these; empty if none was.
        external: True if its policy is external, so that it waits for proposals.
        proposers: Other external policies that proposed candidates, as ``slug@version``.
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
    seeds: int = 0
    sources: tuple[SourceRun, ...] = ()
    external: bool = False
    proposers: tuple[str, ...] = ()
    created_at: datetime


class RankedCandidate(Record):
    """A scored candidate as run records and fronts show it.

    Attributes:
        number: Number in the run.
        rewards: Rewards by objective in the author's units.
        targets: Names of the targets that it meets, without refuted ones.
        scalar: Declared weighted sum; None if the problem declares no weights.
    """

    id: UUID
    number: int
    rewards: dict[str, float]
    targets: tuple[str, ...]
    scalar: float | None = None


class LearningRecord(Record):
    """State of a run's learning. Every group is waiting, in the step in flight, or in one of the counts.

    Attributes:
        version: Policy version in use, as ``slug@version``; None before the first step.
        step: Steps that led to this version, with those of earlier runs of a campaign that learns over its runs.
        taken: Steps that the run itself took.
        campaign: Name of that campaign; None for a run that learns alone.
        busy: True while a step is in flight or waits for a learn worker.
        ended: Why the run learns no further; None while it does.
        seen: Groups of completions so far.
        waiting: Groups for the next steps.
        used: Groups that steps learned from.
        flat: Groups whose completions all earned the same.
        stale: Groups older than the allowed staleness.
        dropped: Groups that are too small, or that no further step needed.
        received: Groups from the run before it in the campaign; they are not among those seen.
        passed: Groups that waited when the run's turn ended, to the run after it.
        tokens: Tokens of all steps, which the run's tokens include.
        seconds: Seconds of all steps.
    """

    version: str | None = None
    step: int = 0
    taken: int = 0
    campaign: str | None = None
    busy: bool = False
    ended: str | None = None
    seen: int = 0
    waiting: int = 0
    used: int = 0
    flat: int = 0
    stale: int = 0
    dropped: int = 0
    received: int = 0
    passed: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def groups(self) -> str:
        """Counts of the groups in one line, without zeros."""
        names = ("used", "flat", "stale", "dropped", "waiting", "received", "passed")
        counts = {name: getattr(self, name) for name in names}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none yet"


class RunRecord(HideableRecord, RunCounters, RunSetup):
    """A run with its progress.

    Attributes:
        candidates: Candidates evaluated or failed.
        best: The best feasible candidate: unlock target met, then most targets, then hardest, then the objectives; None
            before the first.
        no_result: Why a completed run has no result: all candidates failed, or the seed program failed and none is
            feasible. None for other runs. Untrusted text.
        failures: Failed candidates by kind.
        reasons: Failed candidates by reason; ``near_duplicate`` are those that the run rejected as too similar.
        reached: Names of the confirmed targets.
        granted: Evaluations that its campaign has granted so far; None outside a campaign.
        since_improvement: Evaluations since the archive last improved. A large number suggests a plateau.
        alarm: Message while more than half of the latest candidates fail, or None.
        diagnosis: Why the service paused the run, or None.
        learning: What it has learned; None if it does not learn.
        pruned_at: Time when its programs, prompts and completions were deleted, except those of archive and claims.
        revision: Number of commits; the ETag of the run.
    """

    state: RunState
    reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    spent: SpentRecord
    candidates: int
    failures: dict[str, int]
    reasons: dict[str, int]
    best: RankedCandidate | None
    no_result: str | None = None
    reached: tuple[str, ...]
    unlocked: bool
    granted: int | None = None
    since_improvement: int = 0
    alarm: str | None
    diagnosis: Diagnosis | None = None
    learning: LearningRecord | None = None
    pruned_at: datetime | None = None
    last_event: int
    revision: int

    @property
    def outcome(self) -> str:
        """The state for display; a completed run without a result says so."""
        return "no result" if self.no_result else self.state.value

    @property
    def cause(self) -> str | None:
        """Reason of its state for display; what a diagnosis says in detail is left out."""
        if self.state is RunState.PAUSED and self.diagnosis is not None:
            return self.diagnosis.finding
        return self.no_result or self.reason

    @property
    def spending(self) -> tuple[tuple[str, float, float | None], ...]:
        """Unit, amount spent and limit of each part of the budget."""
        spent, budget = self.spent, self.spec.budget
        return (
            ("evaluations", spent.evaluations, budget.evaluations),
            ("tokens", spent.tokens, budget.tokens),
            ("seconds", spent.seconds, budget.seconds),
            ("dollars", spent.cost, budget.dollars),
        )

    @property
    def waits(self) -> bool:
        """True if it waits for the next proposal."""
        return self.external and self.state is RunState.RUNNING and not self.spent.reserved_evaluations

    @property
    def share_spent(self) -> float:
        """Largest spent share of a limit, from 0 to 1."""
        return min(1.0, max(spent / limit for _, spent, limit in self.spending if limit is not None))

    @property
    def seconds_to_go(self) -> float | None:
        """Estimated seconds until a limit is reached at the average rate so far.

        None before anything is spent, while the run is not running, if it waits for proposals, and in a campaign, which
        grants its budget in slices.
        """
        share = self.share_spent
        if self.state is not RunState.RUNNING or self.granted is not None or self.external or not share:
            return None
        return self.spent.seconds * (1 - share) / share


class EventRecord(Record):
    """An event of a run; ``seq`` counts from 1 without gaps and is the ID of the server-sent event."""

    run_id: UUID
    seq: int
    kind: str
    data: dict[str, JsonValue]
    at: datetime


class WorkRecord(Record):
    """A work unit that is leased or waits."""

    work_id: UUID
    run_id: UUID
    kind: str
    state: str
    attempt: int
    lane: int
    lease_seconds_left: float | None


class ActiveEvaluation(Record):
    """A long evaluation in progress.

    Attributes:
        kind: ``evaluate`` or ``confirm``.
        candidates: Number of the first and of the last candidate of its batch.
        candidate: Number of the one under evaluation; null before the first.
        worker: Machine and process that evaluate.
        seconds: Seconds since its start.
        text: Last text of progress that its evaluator reported or printed, untrusted; empty if none.
    """

    work_id: UUID
    kind: str
    candidates: tuple[int, int]
    candidate: int | None = None
    worker: str
    started_at: datetime
    seconds: float
    text: str = ""


class WorkerProcess(Record):
    """A live worker process.

    Attributes:
        slots: Work units that it executes at once.
        tier: Isolation tier in which it evaluates candidates; empty if it evaluates none.
        languages: Version of each known language in which it evaluates programs, by name, without Python.
        tools: Programs of these languages and of those that running problems need, and abilities such as container
            images.
    """

    name: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    tier: str
    languages: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] = ()

    def runs(self, problem: Problem) -> bool:
        """Return True if it has the language of a problem, or runs its image."""
        return problem.tools <= {*self.tools}


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
