"""Records of unlocks, attempts and objective records."""

from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.domain.policy import PolicyRole
from speciate.domain.target import ClaimState
from speciate.schema.base import Record
from speciate.schema.runs import RankedCandidate, SourceRun

PAIR_SEPARATOR: Final = " with "
"""Joins the names of a policy and its mutator."""


def pair_name(policy: str, mutator: str | None) -> str:
    """Return the joint name of a policy and its mutator; the policy's own name if it mutates itself."""
    return policy if mutator in {None, policy} else f"{policy}{PAIR_SEPARATOR}{mutator}"


class PolicyNames(Record):
    policy: str
    """The proposing policy, the first one of an ensemble."""
    policy_version: int
    mutator: str | None = None
    mutator_version: int | None = None
    ensemble: tuple[str, ...] = ()
    """All policies of the run as ``slug@version``, if a role has several. What it reaches then counts for the ensemble
    and for none of its members.
    """

    @property
    def policy_label(self) -> str:
        """Name of the policy, the pair or the ensemble, as in ``Attempt.policy_label``."""
        mutator = self.mutator and f"{self.mutator}@{self.mutator_version}"
        return " + ".join(self.ensemble) or pair_name(f"{self.policy}@{self.policy_version}", mutator)


class UnlockRecord(PolicyNames):
    """A target that a run reached, with the cost so far."""

    run_id: UUID
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    strategy: str
    seed: int
    target: str
    unlock: bool
    """True if the target unlocks the problem."""
    forgeable: bool
    """True if candidates of this problem share a process with their evaluator. A second evaluation cannot rule out
    tampering, so confirmed unlocks keep this mark.
    """
    attested: bool = False
    """True if external evaluators submit the rewards of this problem: the service measured nothing."""
    state: ClaimState
    number: int
    candidate_id: UUID
    by_seed: bool = False
    """True if the candidate is a seed program of the run, which no policy wrote."""
    evaluations: int
    """Evaluations spent up to and including the candidate."""
    tokens: int
    """Tokens spent at its commit."""
    seconds: float
    """Running seconds spent at its commit."""
    sources: tuple[SourceRun, ...] = ()
    """Runs that seed programs of the run were taken from, with what they had spent, which is not in the run's own
    ``evaluations``, ``tokens`` and ``seconds``.
    """
    at: datetime
    proposed_by: str | None = None
    """Policy of kind ``external`` that proposed the candidate, as ``slug@version``; None if the service sampled it."""
    author: str | None = None
    """Name of the token that sent it."""
    model: str | None = None
    """Model that wrote it, as its author names it. Untrusted text."""
    learned: str | None = None
    """Version that the run had learned and that wrote the candidate, as ``slug@version``; its base is ``policy``. None
    if a registered policy wrote it.
    """


class Attempt(Record):
    """Attempts of a policy with a strategy at a target of a problem version."""

    policy: str
    """``slug@version``; for an ensemble all its policies, joined by ``+``."""
    mutator: str | None
    """The policy that changes parents, if it is another one."""
    strategy: str
    runs: int
    """Number of runs; ``evaluations``, ``tokens`` and ``seconds`` are their total cost."""
    evaluations: int
    tokens: int
    seconds: float
    reached: int
    """Runs that reached the target."""
    unlocked_first: bool
    """True if the first of all confirmed candidates is one of theirs."""
    first: UnlockRecord | None
    """Their first confirmed candidate; None if no run reached the target."""

    @property
    def policy_label(self) -> str:
        return pair_name(self.policy, self.mutator)


class TargetUnlocks(Record):
    target: str
    unlock: bool
    """True if the target unlocks the problem."""
    first: UnlockRecord | None
    """The first confirmed candidate."""
    only: str | None
    """The only policy that reached the target while others tried, else None. A policy with a mutator counts separately:
    ``slug@version with slug@version``.
    """
    never: tuple[str, ...]
    """Policies that tried and never reached it, named in the same way."""
    attempts: tuple[Attempt, ...]


class ProblemUnlocks(Record):
    problem: str
    version: int
    evaluator_digest: str
    forgeable: bool
    attested: bool = False
    targets: tuple[TargetUnlocks, ...]


class ObjectiveRecord(Record):
    """A feasible candidate that improved on the best value of one objective over all earlier runs."""

    objective: str
    value: float
    """Value in the author's units."""
    forgeable: bool = False
    """True if the candidate shared a process with its evaluator."""
    attested: bool = False
    """True if an external evaluator submitted the value."""
    run_id: UUID
    number: int
    candidate_id: UUID
    role: PolicyRole | None = None
    """What wrote it; None from an older service."""
    policy: str | None
    """Policy that wrote it; None for a seed program and for one whose numbers were polished."""
    strategy: str
    seed: int
    evaluations: int
    """Evaluations that its run had spent."""
    at: datetime


class PolicyBest(PolicyNames):
    """The best candidate of a policy on a problem version, over all its runs."""

    runs: int
    """Runs with a feasible candidate."""
    run_id: UUID
    best: RankedCandidate


class MatrixCell(Record):
    """Results of a policy version, alone or with a mutator, on a problem version."""

    problem_id: UUID
    policy_id: UUID
    mutator_id: UUID | None
    """The policy that changed parents; None if the policy did."""
    runs: int
    unlocked: int
    """Runs that unlocked the problem."""
    fewest: int | None
    """Evaluations of the cheapest of these runs; None without any."""

    @property
    def pair(self) -> tuple[UUID, UUID | None]:
        """Policy and mutator of the runs."""
        return self.policy_id, self.mutator_id
