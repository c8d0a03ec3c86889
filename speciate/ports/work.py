"""Port to the work queue: work units, leases, and transactions that take effect exactly once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import UUID

from pydantic import BaseModel

from speciate.domain.candidate import Candidate, Evaluation, Individual, Proposal, Repeat
from speciate.domain.charge import Charge
from speciate.domain.ensemble import BanditArm
from speciate.domain.guidance import Advice
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, Rollout
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedProgram
from speciate.domain.target import TargetSet
from speciate.search.strategy import EliteTable, Placement


class WorkKind(StrEnum):
    GENERATE = "generate"
    """Request a batch of candidates from a policy."""
    EVALUATE = "evaluate"
    """Evaluate a batch of candidates."""
    CONFIRM = "confirm"
    """Evaluate one candidate again to confirm the targets that it reached."""
    LEARN = "learn"
    """Train the run's policy on groups of completions."""


class Queue(StrEnum):
    """Queues of the broker. A message carries only the ID of a work unit."""

    GENERATE = "generate"
    EVALUATE = "evaluate"
    LEARN = "learn"
    RETRY = "retry"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class WorkRef:
    id: UUID
    kind: WorkKind
    retried: bool = False  # true if an earlier attempt was lost. Retries have a queue of their own.

    @property
    def queue(self) -> Queue:
        """Queue that carries its message. Only learn workers have the libraries for training."""
        if self.kind is WorkKind.LEARN:
            return Queue.LEARN
        if self.retried:
            return Queue.RETRY
        return Queue.GENERATE if self.kind is WorkKind.GENERATE else Queue.EVALUATE


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to execute one work unit until the lease expires. ``token`` fences off late writes."""

    work_id: UUID
    run_id: UUID
    kind: WorkKind
    lane: int  # lane of the run to which it belongs
    ordinal: int  # ordinal of the batch, counted from 0. It is the clock of the search and seeds the random choices.
    attempt: int  # number of this attempt, counted from 1
    token: UUID
    payload: Mapping[str, Any]  # input of the work as JSON values
    last_event: int  # sequence number of the run's newest event at the time of the lease


@dataclass(frozen=True, slots=True)
class WeightedPolicy:
    policy: Policy
    policy_id: UUID
    weight: float = 1.0  # positive; only the ratio to the other weights matters


POLISHER: Final = WeightedPolicy(Policy(slug="polish", kind="polish"), UUID(int=0))
"""The service's own polisher, which every run has; it is no registered policy."""
_WRITING: Final = (PolicyRole.PROPOSE, PolicyRole.MUTATE)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The immutable part of a run."""

    run_id: UUID
    problem: Problem
    proposer: Policy  # the policy version that writes candidates from scratch, and mutates unless there is a mutator
    proposer_id: UUID
    spec: RunSpec  # strategy, budget, seed and further options
    mutator: Policy | None = None  # the policy version that changes parents, or None if the proposer does
    mutator_id: UUID | None = None
    # Policies by role, if a role has several. ``proposer`` and ``mutator`` are the first ones.
    ensembles: Mapping[PolicyRole, tuple[WeightedPolicy, ...]] = field(default_factory=dict)
    project_id: UUID | None = None  # the project, within which runs share results
    # Programs to evaluate first in place of the problem's seed program; empty for the latter.
    seeds: tuple[SeedProgram, ...] = ()
    proposer_version: int = 0  # number of the proposer's version

    def learned(self, version: "LearnedVersion | None") -> "RunContext":
        """Return this context with a learned version in place of the proposer."""
        return self if version is None else replace(self, proposer=version.policy, proposer_id=version.policy_id)

    @property
    def seed_programs(self) -> tuple[SeedProgram, ...]:
        """The programs of the first batch, candidates 1 to n; empty if every candidate starts from scratch."""
        program = self.problem.seed_program
        return self.seeds or ((SeedProgram(program),) if program else ())

    @property
    def reuses(self) -> bool:
        """True if the run shares evaluation results with other runs."""
        return self.spec.reuse_results and self.problem.repeatable and self.spec.budget.seconds is None

    @property
    def repeats(self) -> bool:
        """True if the run evaluates good programs again, since rewards are noisy; training needs whole groups."""
        return self.problem.is_noisy and self.spec.learning is None

    @property
    def waits_for_proposals(self) -> bool:
        """True if all candidates come from outside: the run requests none, and waits while its budget lasts."""
        return self.proposer.is_external or self.spec.engine is not None

    @property
    def has_ensemble(self) -> bool:
        """True if a role has several policies."""
        return bool(self.ensembles)

    @property
    def token_price(self) -> float:
        """What a token costs at most, in US dollars: the highest price of the run's policies without the agents."""
        policies = [policy for policy in self._members if not policy.bills_afterwards]
        return max((policy.price.dearest for policy in policies if policy.price is not None), default=0.0)

    @property
    def bills_afterwards(self) -> bool:
        """True if the budget is of dollars and agents answer, whose cost is known afterwards only."""
        return self.spec.budget.dollars is not None and any(policy.bills_afterwards for policy in self._members)

    @property
    def samples_at_endpoint(self) -> bool:
        """True if a policy samples free text at an endpoint, so that it repeats its answers only by mistake."""
        return any(policy.base_url is not None and policy.codec is None for policy in self._members)

    @property
    def asks_model(self) -> bool:
        """True if a model or an agent writes candidates."""
        return any(policy.asks_model for policy in self._members)

    @property
    def _members(self) -> list[Policy]:
        members = [self.proposer, *([] if self.mutator is None else [self.mutator])]
        return members + [share.policy for shares in self.ensembles.values() for share in shares]

    @property
    def operators(self) -> Mapping[PolicyRole, float]:
        """The run's operators, with the share of each in its prompts before its success is known; they sum to 1.

        Policies with a codec were trained on programs of their own, whose numbers mean something else, and many of them
        know little but programs from scratch.
        """
        if any(share.policy.codec is not None for role in _WRITING for share in self.policies(role)):
            return {PolicyRole.PROPOSE: 0.5, PolicyRole.MUTATE: 0.5}
        polish = 0.0 if self.spec.keeps_tokens else 0.45
        return {PolicyRole.PROPOSE: 0.05, PolicyRole.MUTATE: 0.95 - polish, PolicyRole.POLISH: polish}

    def policies(self, role: PolicyRole) -> tuple[WeightedPolicy, ...]:
        """Return the policies of a role. Proposers also mutate if there is no mutator; mutators also advise."""
        if role is PolicyRole.POLISH:
            return (POLISHER,)
        if role is not PolicyRole.PROPOSE and self.mutator is not None and self.mutator_id is not None:
            return self.ensembles.get(PolicyRole.MUTATE) or (WeightedPolicy(self.mutator, self.mutator_id),)
        return self.ensembles.get(PolicyRole.PROPOSE) or (WeightedPolicy(self.proposer, self.proposer_id),)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is."""

    seed: int | None  # number of the first seed program with rewards, or None
    best: int | None  # number of the best feasible candidate, or None
    evaluations_left: int | None  # evaluations that may still be reserved, or None without a limit
    confirmed: Mapping[str, int] = field(default_factory=dict)  # the candidates that confirmed a target, by its name


@dataclass(frozen=True, slots=True)
class LearnedVersion:
    """The version of a run's policy in use."""

    policy: Policy
    policy_id: UUID
    step: int  # number of the step that wrote it, from 1


class GroupRef(BaseModel):
    """Reference to the stored completions of a group."""

    batch: int  # ordinal of their batch
    first: int  # position of the first one within the batch
    size: int  # number of completions
    tokens: int  # their tokens, prompts included, which a step spends
    step: int = 0  # step of the version that wrote them
    number: int = 0  # number of the batch's first candidate
    count: int = 0  # candidates of the batch
    run: str | None = None  # id of their run; None for the run that learns from them


@dataclass(frozen=True, slots=True)
class StoredRollout:
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # log-probability of each
    rewards: tuple[tuple[float, ...] | None, ...]  # raw rewards of its answers, in order; None for a failed answer


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored completions of one prompt."""

    prompt: Prompt
    rollouts: tuple[StoredRollout, ...]


@dataclass(frozen=True, slots=True)
class LearnedStep:
    number: int  # number of the step, from 1
    policy: Policy  # the version that it wrote
    seconds: float
    metrics: Mapping[str, float]  # measurements; see ``LearnedCheckpoint``

    @property
    def version(self) -> str:
        """Name of the version: a run numbers its versions by their steps."""
        return f"{self.policy.slug}@{self.number}"


@dataclass(frozen=True, slots=True)
class ProposedBatch:
    rollouts: tuple[Rollout, ...]  # completions in order
    proposals: tuple[Proposal, ...]  # children in order, rejected ones included
    placements: tuple[Placement, ...] = ()  # archive updates requested by the strategy's maintenance
    advice: Advice | None = None  # a new piece of advice, if the unit requested and received one
    step: int = 0  # step of the learned version that wrote the batch; 0 for the policy that the run began with
    outages: Mapping[str, str] = field(default_factory=dict)  # of policies, by digest: others answered for them


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """An evaluation that an external evaluator performs for a work unit."""

    number: int
    program: str
    program_hash: str  # SHA-256 of the text. With the seed it identifies the request within its unit.
    seed: int
    measured: Evaluation | None = None  # result of the sandboxed stages; None if there are none
    # The result, if a sandboxed stage ended the evaluation; None if an external evaluator has to measure.
    result: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    candidates: tuple[Candidate, ...]  # one per proposal, in order
    placements: tuple[Placement, ...] = ()  # archive updates requested by the strategy

    @property
    def repeated(self) -> list[int]:
        """Numbers of the programs with noisy rewards that were evaluated again."""
        return sorted({c.duplicate_of for c in self.candidates if c.duplicate_of is not None})

    @property
    def newcomers(self) -> list[int]:
        """Numbers of the new programs with rewards."""
        return [c.number for c in self.candidates if c.duplicate_of is None and c.evaluation.rewards is not None]


@dataclass(frozen=True, slots=True)
class Confirmation:
    number: int
    confirmed: Sequence[int]  # positions of the targets that every repeat met
    # What was measured, as text, by position of each target that a repeat missed.
    refuted: Mapping[int, str] = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()  # what the repeats measured

    @property
    def refuted_targets(self) -> TargetSet:
        return sum(1 << position for position in self.refuted)


@dataclass(frozen=True, slots=True)
class FinalValue:
    """What evaluations of a candidate after the end measured; they decide between two candidates at most."""

    number: int
    evaluations: int
    """Evaluations that succeeded."""
    mean: tuple[float, ...] = ()
    """Their raw rewards, shape (d,); empty if there are none."""
    margin: tuple[float, ...] = ()
    """Half the width of their 95 % intervals (Student's t), shape (d,); empty with fewer than two evaluations."""
    failed: int = 0
    """Evaluations that failed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes of a transaction that other processes need to know."""

    run_id: UUID
    dispatch: tuple[WorkRef, ...] = ()  # work units that became ready
    placements: tuple[Placement, ...] = ()  # archive updates that were accepted
    revision: int = 0  # number of commits of the run so far
    last_event: int = 0  # sequence number of its newest event


@dataclass(frozen=True, slots=True)
class CarriedOutput:
    """Output of an earlier candidate that a later one receives."""

    number: int
    output: str  # the output, as its script stored it


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    commits: tuple[Commit, ...] = ()  # transactions to publish
    retried: int = 0  # work units returned to the queue after their lease expired
    poisoned: int = 0  # work units abandoned after too many attempts
    resent: int = 0  # work units whose message was lost and sent again


class WorkStore(Protocol):
    """Leases work units and records their results. A method that takes a lease returns None if the lease is lost."""

    def claim(self, work_id: UUID) -> Lease | None:
        """Lease a ready work unit of a running run; None if it is not available."""

    def extend(self, lease: Lease) -> bool:
        """Renew a lease; False if it is lost."""

    def context(self, run_id: UUID) -> RunContext:
        """Return the immutable part of a run; raises ``NotFoundError`` for an unknown one."""

    def seconds_left(self, run_id: UUID) -> float | None:
        """Return the running seconds left in the run's budget, or None without a limit."""

    def elites(self, run_id: UUID, island: int) -> EliteTable:
        """Return the archive of an island."""

    def lineage_rows(self, run_id: UUID) -> Sequence[tuple[int, int, Sequence[float] | None]]:
        """Return ``(number, first parent or 0, raw rewards or None)`` of all but repeats, ascending by number."""

    def members(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, Individual]:
        """Return candidates by number; unknown numbers are left out."""

    def latest(self, run_id: UUID, most: int) -> Sequence[Individual]:
        """Return the latest candidates but repeats, at most ``most``, newest first, without programs and artifacts."""

    def standing(self, run_id: UUID) -> Standing:
        """Return how far a run is."""

    def completions(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, str]:
        """Return the completions that gave one candidate, by its number; others are left out."""

    def carried(self, run_id: UUID, to: int | None = None) -> CarriedOutput | None:
        """Return the output of the run's best candidate, or the one that candidate ``to`` received; None without."""

    def duplicates(self, run_id: UUID, hashes: Sequence[str], shapes: Sequence[str] = ()) -> dict[str, Candidate]:
        """Return the run's earliest candidate for each known program hash and shape."""

    def results(self, run_id: UUID, hashes: Sequence[str], tier: str) -> dict[str, tuple[str, Evaluation]]:
        """Return ``run/number`` and result, at no cost, of candidates of other runs, by program hash.

        They have the same evaluator and isolation tier.

        Empty if the run does not reuse results or its problem forbids it.
        """

    def arms(self, run_id: UUID) -> dict[str, BanditArm]:
        """Return the bandit statistics of an ensemble's policies, by role and position."""

    def advice(self, run_id: UUID) -> tuple[Advice, ...]:
        """Return the advice in use, ordered by number. The first entry is no advice."""

    def reserve_tokens(self, lease: Lease, tokens: int, agent_answers: int = 0) -> bool | None:
        """Reserve tokens for the requests of this unit; False if the budget does not hold them."""

    def commit_proposals(self, lease: Lease, batch: ProposedBatch) -> Commit | None:
        """Record a generated batch: rollouts, tokens and the following ``evaluate`` unit."""

    def commit_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> Commit | None:
        """Record an evaluated batch: candidates, archive, counters, claims and the following unit."""

    def commit_confirmation(self, lease: Lease, confirmation: Confirmation) -> Commit | None:
        """Record a confirmation: the claims, the repeats and the following unit."""

    def commit_final(self, lease: Lease, final: FinalValue) -> Commit | None:
        """Record the value of the best candidate after the end of the run, and complete the run."""

    def learned(self, run_id: UUID) -> LearnedVersion | None:
        """Return the learned version in use; None for the policy that the run began with."""

    def groups(self, run_id: UUID, refs: Sequence[GroupRef]) -> tuple[StoredGroup, ...]:
        """Return groups of completions, in order."""

    def commit_step(self, lease: Lease, step: LearnedStep) -> Commit | None:
        """Record a training step: the new version, which the run uses from now on, and the groups as used."""

    def end_learning(self, lease: Lease, reason: str) -> Commit | None:
        """Record that a step failed for good: the run learns no further and keeps its version."""

    def external_results(self, work_id: UUID) -> dict[tuple[str, int], Evaluation]:
        """Return the external results of a unit by program hash and seed."""

    def park(self, lease: Lease, requests: Sequence[EvaluationRequest]) -> Commit | None:
        """Store requests to external evaluators, and set this unit aside until all of them have results."""

    def end_lane(self, lease: Lease) -> Commit | None:
        """Finish this unit without a successor, since the budget does not allow another batch."""

    def release(self, lease: Lease, reason: str, *, spent: Charge | None = None) -> Commit | None:
        """Make this unit ready again and pause its run, because a shared service is unavailable.

        If the unit was leased before the run was last resumed, the outage may be over. The run then continues, and the
        unit's next attempt pauses it if the outage lasts. ``spent`` is what the requests of this unit cost; the rest of
        its reservation is freed. None if unknown: the whole reservation then counts as spent.
        """

    def reconcile(self) -> ReconcileReport:
        """Return expired leases to the queue, abandon poisoned units, send lost messages again and end late runs."""


class CommitListener(Protocol):
    """Publishes commits: sends queue messages and wakes event streams.

    Publishing may fail or get lost at any time without harm: PostgreSQL is the source of truth, and the reconciler
    sends messages again.
    """

    def committed(self, commit: Commit) -> None:
        """Publish a commit. Never raises if a receiver is unavailable."""
