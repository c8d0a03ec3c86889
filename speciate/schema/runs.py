"""Records of runs, their events, their work units and the workers."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from pydantic import Field, JsonValue

from speciate.domain.campaign import waits_for_grant
from speciate.domain.diagnosis import Diagnosis
from speciate.domain.learning import LearningCounters
from speciate.domain.problem import Problem
from speciate.domain.run import RunCounters, RunSpec, RunState
from speciate.schema.base import HideableRecord, Record
from speciate.schema.estimates import RunEstimate
from speciate.schema.policies import EnsembleMember
from speciate.schema.results import ComparedReward, RunResult


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
    """Budget that a run has spent, and what its work in flight has reserved."""

    evaluations: int
    tokens: int
    seconds: float
    cost: float = 0.0
    """Cost of its completions in US dollars; 0 if its policies declare no price."""
    reserved_evaluations: int
    reserved_tokens: int


class SourceRun(Record):
    """A run from which another took seed programs, or from which that one did, with what it had spent by then."""

    run: UUID
    evaluations: int
    tokens: int
    seconds: float
    """Running seconds."""


class RunSetup(Record):
    id: UUID
    name: str = ""
    """Name given by a user; several runs may have the same. Untrusted text."""
    tags: tuple[str, ...] = ()
    """Tags shared with other runs."""
    note: str = ""
    """Remarks of a user. Untrusted text."""
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    policy: str
    """The proposing policy, the first one of an ensemble."""
    policy_version: int
    mutator_id: UUID | None = None
    mutator: str | None = None
    """The policy that changes parents, if it is another one; the first one of an ensemble."""
    mutator_version: int | None = None
    ensembles: tuple[EnsembleMember, ...] = ()
    """The policies of all roles if one of them has several; otherwise empty."""
    spec: RunSpec
    seeds: int = 0
    """Number of seed programs that it was given; 0 if it starts from the problem's."""
    sources: tuple[SourceRun, ...] = ()
    """Runs that seed programs were taken from, and the sources of these; empty if none was."""
    estimate: RunEstimate | None = None
    """What was estimated before it started; None if nobody asked."""
    declared: bool = False
    """True if a tournament or campaign started it."""
    external: bool = False
    """True if its policy is external, so that it waits for proposals."""
    proposers: tuple[str, ...] = ()
    """Other external policies that proposed candidates, as ``slug@version``."""
    created_at: datetime

    def policies_of(self, role: Literal["propose", "mutate"]) -> str:
        """Return the names of the policies of a role as ``slug@version``, joined; empty without a mutator."""
        first = f"{self.policy}@{self.policy_version}"
        if role == "mutate":
            first = f"{self.mutator}@{self.mutator_version}" if self.mutator else ""
        members = [f"{each.policy}@{each.policy_version}" for each in self.ensembles if each.role == role]
        return first and " + ".join(members or [first])


class RankedCandidate(Record):
    """A scored candidate as run records and fronts show it."""

    id: UUID
    number: int
    rewards: dict[str, float]
    """Rewards by objective in the author's units."""
    targets: tuple[str, ...]
    """Names of the targets that it meets, without refuted ones."""
    scalar: float | None = None
    """Declared weighted sum; None if the problem declares no weights."""
    evaluations: int = 1
    """Evaluations of which its rewards are the mean, if they are noisy."""
    margin: dict[str, float] = Field(default_factory=dict)
    """Half the widths of the 95 % intervals of noisy rewards, from evaluations after the end of the run, whose mean the
    rewards then are; empty before.
    """
    failed_after_end: int = 0
    """Evaluations after the end that failed."""


class LearningRecord(Record, LearningCounters):
    """State of a run's learning. Every group is waiting, in the step in flight, or in one of the counts."""

    version: str | None = None
    """Policy version in use, as ``slug@version``; None before the first step."""
    waiting: int = 0
    """Groups for the next steps."""

    @property
    def groups(self) -> str:
        """Counts of the groups in one line, without zeros."""
        names = ("used", "flat", "stale", "dropped", "waiting", "received", "passed")
        counts = {name: getattr(self, name) for name in names}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none yet"


class RunRecord(HideableRecord, RunCounters, RunSetup):
    """A run with its progress."""

    state: RunState
    reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    spent: SpentRecord
    candidates: int
    """Candidates evaluated or failed."""
    failures: dict[str, int]
    """Failed candidates by kind."""
    reasons: dict[str, int]
    """Failed candidates by reason; ``near_duplicate`` are those that the run rejected as too similar."""
    best: RankedCandidate | None
    """The best feasible candidate: unlock target met, then most targets, then hardest, then the objectives; None before
    the first.
    """
    best_rewards: tuple[ComparedReward, ...] = ()
    """Rewards of the best candidate beside the seed program's: those of the unlock rule first, without records, at most
    twelve.
    """
    no_result: str | None = None
    """Why a completed run has no result: all candidates failed, or the seed program failed and none is feasible. None
    for other runs. Untrusted text.
    """
    reached: tuple[str, ...]
    """Names of the confirmed targets."""
    unlocked: bool
    granted: int | None = None
    """Evaluations that its campaign has granted so far; None outside a campaign."""
    since_improvement: int = 0
    """Evaluations since the archive last improved. A large number suggests a plateau."""
    alarm: str | None
    """Message while most of the latest candidates fail or repeat others, or a policy is unavailable; else None."""
    diagnosis: Diagnosis | None = None
    """Why the service paused the run, or None."""
    learning: LearningRecord | None = None
    """What it has learned; None if it does not learn."""
    pruned_at: datetime | None = None
    """Time when its programs, prompts and completions were deleted, except those of archive and claims."""
    last_event: int
    revision: int
    """Number of commits; the ETag of the run."""

    def __repr__(self) -> str:
        return f"<run {self.id}, {self.state.value}, {self.spent.evaluations:,} evaluations>"

    @property
    def result(self) -> RunResult | None:
        """Its result as lists show it; None before the first feasible candidate."""
        if self.best is None:
            return None
        problem = f"{self.problem}@{self.problem_version}"
        return RunResult(run_id=self.id, problem=problem, number=self.best.number, rewards=self.best_rewards)

    @property
    def outcome(self) -> str:
        """The state for display; a completed run without a result says so, and a running one that waits."""
        waits = self.waits or (self.state is RunState.RUNNING and self.reason)
        return "no result" if self.no_result else "waiting" if waits else self.state.value

    @property
    def stays_paused(self) -> bool:
        """True if it is paused for another reason than to wait for its campaign, which may be paused itself."""
        return self.state is RunState.PAUSED and not waits_for_grant(self.reason)

    @property
    def cause(self) -> str | None:
        """Reason of its state for display; what a diagnosis says in detail is left out."""
        if self.state is RunState.PAUSED and self.diagnosis is not None:
            return self.diagnosis.finding
        return self.no_result or ("waits for proposals" if self.waits else self.reason)

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
    def actual(self) -> dict[str, float]:
        """What it has spent of the amounts of ``RunEstimate.ranges``, as far as it is recorded."""
        spent = {unit: spent for unit, spent, _ in self.spending}
        return spent | {"failed": self.failed, "completions": self.rollouts}

    @property
    def waits(self) -> bool:
        """True if it waits for the next proposal."""
        return self._is_proposed and self.state is RunState.RUNNING and not self.spent.reserved_evaluations

    @property
    def _is_proposed(self) -> bool:
        """True if all candidates come from outside: an engine proposes them, or whoever likes."""
        return self.external or self.spec.engine is not None

    @property
    def engine_command(self) -> str:
        """Command that starts the engine that it waits for; empty once one has begun."""
        begun = self.rollouts or self.spent.evaluations > 1 or self.state is not RunState.RUNNING
        return "" if begun else self.spec.engine_command

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
        if self.state is not RunState.RUNNING or self.granted is not None or self._is_proposed or not share:
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
    work_id: UUID
    run_id: UUID
    kind: str
    state: str
    attempt: int
    lane: int
    lease_seconds_left: float | None


class ActiveEvaluation(Record):
    """A long evaluation in progress."""

    work_id: UUID
    kind: str
    """``evaluate`` or ``confirm``."""
    candidates: tuple[int, int]
    """Number of the first and of the last candidate of its batch."""
    candidate: int | None = None
    """Number of the one under evaluation; null before the first."""
    worker: str
    """Machine and process that evaluate."""
    started_at: datetime
    seconds: float
    """Seconds since its start."""
    text: str = ""
    """Last text of progress that its evaluator reported or printed, untrusted; empty if none."""


class WorkerProcess(Record):
    name: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    """Work units that it executes at once."""
    tier: str
    """Isolation tier in which it evaluates candidates; empty if it evaluates none."""
    languages: dict[str, str] = Field(default_factory=dict)
    """Version of each known language in which it evaluates programs, by name, without Python."""
    tools: tuple[str, ...] = ()
    """Programs of these languages and of those that running problems need, and container images."""

    def runs(self, problem: Problem) -> bool:
        """Return True if it has the language of a problem, or runs its image."""
        return problem.worker_capabilities <= {*self.tools}


class StrategyRecord(Record):
    name: str
    """Name in the spec of a run."""
    description: str
    """One line."""
    options: dict[str, Any]
    """JSON schema of its options."""
