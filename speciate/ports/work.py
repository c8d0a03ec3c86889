"""The port to the work plane: units of work, their leases, and transactions that happen exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from speciate.domain.candidate import Evaluation, FailureKind, Individual, Proposal
from speciate.domain.ensemble import BanditArm
from speciate.domain.guidance import Advice
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunSpec
from speciate.search.strategy import EliteTable, Placement


class WorkKind(StrEnum):
    """What a unit of work does."""

    GENERATE = "generate"
    """Ask a policy for a batch of candidates."""
    EVALUATE = "evaluate"
    """Score a batch of candidates."""
    CONFIRM = "confirm"
    """Score one candidate again, to see whether a target it reached holds."""


class Queue(StrEnum):
    """The broker's queues; a message holds the id of a unit of work and nothing else."""

    GENERATE = "generate"
    EVALUATE = "evaluate"
    RETRY = "retry"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class WorkRef:
    """A unit of work that somebody should be told about.

    Attributes:
        id: Its id.
        kind: What it does.
        retried: Whether an earlier attempt was lost; such work has a queue of its own.
    """

    id: UUID
    kind: WorkKind
    retried: bool = False

    @property
    def queue(self) -> Queue:
        """The queue it waits in."""
        if self.retried:
            return Queue.RETRY
        return Queue.GENERATE if self.kind is WorkKind.GENERATE else Queue.EVALUATE


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do one unit of work until the lease expires; ``token`` fences late effects off.

    Attributes:
        work_id: The unit of work.
        run_id: Its run.
        kind: What it does.
        lane: Which of the run's chains of batches it belongs to.
        ordinal: Ordinal of the batch, counted from 0: the clock of the search and the seed of its choices.
        attempt: Which attempt this is, counted from 1.
        token: Proof of the lease.
        payload: What the work needs, as JSON values.
        last_event: Sequence number of the run's newest event when it was leased.
    """

    work_id: UUID
    run_id: UUID
    kind: WorkKind
    lane: int
    ordinal: int
    attempt: int
    token: UUID
    payload: Mapping[str, Any]
    last_event: int


@dataclass(frozen=True, slots=True)
class WeightedPolicy:
    """A policy of a role, and how often it is asked where weights decide.

    Attributes:
        policy: The policy version.
        policy_id: Its id.
        weight: Positive; only its ratio to the others' matters.
    """

    policy: Policy
    policy_id: UUID
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RunContext:
    """Everything about a run that never changes.

    Attributes:
        run_id: Its id.
        problem: The problem version it works on.
        proposer: The policy version that is asked to write from scratch, and to mutate unless there is a mutator.
        mutator: The policy version that changes parents, if another one does.
        proposer_id: Id of that policy version.
        mutator_id: Id of that policy version.
        spec: Strategy, budget, seed, …
        ensembles: Policies by role where a role has several, ``proposer`` and ``mutator`` being the first ones of
            theirs; empty where there are no others.
        project_id: The project it belongs to: results are shared within it.
    """

    run_id: UUID
    problem: Problem
    proposer: Policy
    proposer_id: UUID
    spec: RunSpec
    mutator: Policy | None = None
    mutator_id: UUID | None = None
    ensembles: Mapping[PolicyRole, tuple[WeightedPolicy, ...]] = field(default_factory=dict)
    project_id: UUID | None = None

    @property
    def reuses(self) -> bool:
        """Whether it keeps results for other runs and uses theirs."""
        return self.spec.reuse_results and self.problem.repeatable and self.spec.budget.seconds is None

    @property
    def has_ensemble(self) -> bool:
        """Whether it asks more policies than one proposer and one mutator."""
        return bool(self.ensembles)

    def policies(self, role: PolicyRole) -> tuple[WeightedPolicy, ...]:
        """Return the policies of a role; without mutators the proposers do both, and who mutates advises."""
        if role is not PolicyRole.PROPOSE and self.mutator is not None and self.mutator_id is not None:
            return self.ensembles.get(PolicyRole.MUTATE) or (WeightedPolicy(self.mutator, self.mutator_id),)
        return self.ensembles.get(PolicyRole.PROPOSE) or (WeightedPolicy(self.proposer, self.proposer_id),)


@dataclass(frozen=True, slots=True)
class ProposedBatch:
    """What a ``generate`` unit made.

    Attributes:
        rollouts: Completions in order.
        proposals: Children in order, rejected ones included.
        placements: Archive updates that maintenance asked for.
        advice: A new piece of advice, where one was asked for and given.
    """

    rollouts: tuple[Rollout, ...]
    proposals: tuple[Proposal, ...]
    placements: tuple[Placement, ...] = ()
    advice: Advice | None = None


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """What became of one proposal.

    Attributes:
        proposal: The child.
        evaluation: Its result; for a duplicate, the result that its duplicate had.
        duplicate_of: Number of the earlier candidate with the same program, or None; of a rejected near-duplicate, the
            one that it is too much like.
        targets: Bit mask of the targets its rewards meet.
        shape: Digest of its syntax tree, where the run compares trees and the program is new.
        reused_from: ``run/number`` of the candidate of another run whose result it has.
    """

    proposal: Proposal
    evaluation: Evaluation
    duplicate_of: int | None = None
    targets: int = 0
    shape: str | None = None
    reused_from: str | None = None

    @property
    def repeats(self) -> bool:
        """Whether it has the result of an earlier candidate with the same program."""
        failure = self.evaluation.failure
        return self.duplicate_of is not None and (failure is None or failure.kind is not FailureKind.REJECTED)


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    """What an ``evaluate`` unit found: outcome i belongs to candidate ``first_number + i``.

    Attributes:
        outcomes: One per proposal, in order.
        placements: Archive updates that the strategy asked for.
    """

    outcomes: tuple[CandidateOutcome, ...]
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a ``confirm`` unit found.

    Attributes:
        number: The candidate that was evaluated again.
        target: Position of the target among the problem's targets.
        holds: Whether every repeat met it.
        detail: What the repeats gave, when they did not.
    """

    number: int
    target: int
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """What the rest of the system should hear after a transaction.

    Attributes:
        run_id: The run.
        dispatch: Units of work that became ready.
        placements: Archive updates that were granted.
        revision: Number of commits of the run so far.
        last_event: Sequence number of its newest event.
    """

    run_id: UUID
    dispatch: tuple[WorkRef, ...] = ()
    placements: tuple[Placement, ...] = ()
    revision: int = 0
    last_event: int = 0


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An earlier candidate of the run with the same program.

    Attributes:
        number: Its number.
        evaluation: Its result.
        targets: Bit mask of the targets it met.
    """

    number: int
    evaluation: Evaluation
    targets: int = 0


@dataclass(frozen=True, slots=True)
class ReusedResult:
    """A result of another run.

    Attributes:
        source: ``run/number`` of the candidate that was evaluated.
        evaluation: What it gave, at no cost.
    """

    source: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What the reconciler did in one pass.

    Attributes:
        commits: Transactions whose effects others should hear of.
        retried: Units of work whose lease had expired and that are ready again.
        poisoned: Units of work that were given up after too many attempts.
        resent: Units of work whose doorbell had been lost.
    """

    commits: tuple[Commit, ...] = ()
    retried: int = 0
    poisoned: int = 0
    resent: int = 0


class WorkStore(Protocol):
    """Hands out work and books its results. A method that takes a lease returns None when that lease is lost."""

    def claim(self, work_id: UUID) -> Lease | None:
        """Lease a ready unit of a running run; None when there is nothing to do."""
        ...

    def extend(self, lease: Lease) -> bool:
        """Prolong a lease; False when it is lost."""
        ...

    def context(self, run_id: UUID) -> RunContext:
        """Return what never changes about a run.

        Raises:
            NotFoundError: There is no such run.
        """
        ...

    def seconds_left(self, run_id: UUID) -> float | None:
        """Return the running seconds left in the run's budget, or None without such a limit."""
        ...

    def elites(self, run_id: UUID, island: int) -> EliteTable:
        """Return the archive of an island."""
        ...

    def members(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, Individual]:
        """Return the named members of the population."""
        ...

    def duplicates(self, run_id: UUID, hashes: Sequence[str], shapes: Sequence[str] = ()) -> dict[str, Duplicate]:
        """Return the earliest candidate for every program hash and every shape that the run has already seen."""
        ...

    def results(self, run_id: UUID, hashes: Sequence[str], tier: str) -> dict[str, ReusedResult]:
        """Return what other runs kept of programs that the run's evaluator scored in this tier, by program hash.

        Nothing for a run that does not reuse results, or whose problem does not let it.
        """
        ...

    def arms(self, run_id: UUID) -> dict[str, BanditArm]:
        """Return what the policies of an ensemble have done so far, by role and position."""
        ...

    def advice(self, run_id: UUID) -> tuple[Advice, ...]:
        """Return the advice that prompts may carry, no advice first, in order of number."""
        ...

    def reserve_tokens(self, lease: Lease, tokens: int) -> bool | None:
        """Set tokens aside for the requests of this unit; False when the budget does not hold them."""
        ...

    def record_proposals(self, lease: Lease, batch: ProposedBatch) -> Commit | None:
        """Book a generated batch: rollouts, tokens, and the ``evaluate`` unit that follows."""
        ...

    def record_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> Commit | None:
        """Book an evaluated batch: candidates, archive, counters, claims, and the unit that follows."""
        ...

    def record_confirmation(self, lease: Lease, confirmation: Confirmation) -> Commit | None:
        """Book a confirmation: the claim, and the unit that follows."""
        ...

    def end_lane(self, lease: Lease) -> Commit | None:
        """Finish this unit without a successor: the budget holds no further batch."""
        ...

    def release(self, lease: Lease, reason: str, *, tokens: int | None = None) -> Commit | None:
        """Make this unit ready again and pause its run: a part that everybody needs does not answer.

        A unit that was leased before the run was resumed tells of an outage that may be over: the run goes on, and the
        unit's next attempt pauses it where it is not.

        Args:
            lease: The unit.
            reason: Why, for people.
            tokens: Tokens that requests of this unit took which were answered; the rest of its reservation is freed.
                None where nobody can tell: all of it may have been spent, so it counts as spent.
        """
        ...

    def reconcile(self) -> ReconcileReport:
        """Take back expired leases, give up poisoned work, ring lost doorbells, end runs whose time is up."""
        ...


class CommitListener(Protocol):
    """Tells others what was committed: rings doorbells, updates the archive's cache, wakes streams.

    It may fail or be lost at any time without harm: PostgreSQL is the truth and the reconciler rings again.
    """

    def committed(self, commit: Commit) -> None:
        """Spread a commit; never raises because a listener is away."""
        ...
