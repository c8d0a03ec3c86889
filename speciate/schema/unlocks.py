"""Records of unlocks, attempts and objective records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.domain.target import ClaimState
from speciate.schema.base import Record
from speciate.schema.runs import RankedCandidate, SourceRun

PAIR_SEPARATOR: Final = " with "
"""Joins the names of a policy and its mutator."""


def pair_name(policy: str, mutator: str | None) -> str:
    """Return the joint name of a policy and its mutator; the policy's own name if it mutates itself."""
    return policy if mutator in {None, policy} else f"{policy}{PAIR_SEPARATOR}{mutator}"


def policy_label(
    ensemble: Sequence[str], policy: str, version: int, mutator: str | None, mutator_version: int | None
) -> str:
    """Return the name of a policy, a pair or an ensemble."""
    return " + ".join(ensemble) or pair_name(f"{policy}@{version}", mutator and f"{mutator}@{mutator_version}")


class UnlockRecord(Record):
    """A target that a run reached, with the cost so far.

    Attributes:
        policy: The proposing policy, the first one of an ensemble.
        ensemble: All policies of the run as ``slug@version``, if a role has several. The unlock then counts for the
            ensemble and for none of its members.
        unlock: True if the target unlocks the problem.
        forgeable: True if candidates of this problem share a process with their evaluator. A second evaluation cannot
            rule out tampering, so confirmed unlocks keep this mark.
        attested: True if external evaluators submit the rewards of this problem: the service measured nothing.
        evaluations: Evaluations spent up to and including the candidate.
        tokens: Tokens spent at its commit.
        seconds: Running seconds spent at its commit.
        sources: Runs that seed programs of the run were taken from, with what they had spent, which is not in the
            run's own ``evaluations``, ``tokens`` and ``seconds``.
        proposed_by: Policy of kind ``external`` that proposed the candidate, as ``slug@version``; None if the service
            sampled it.
        author: Name of the token that sent it.
        model: Model that wrote it, as its author names it. Untrusted text.
        learned: Version that the run had learned and that wrote the candidate, as ``slug@version``; its base is
            ``policy``. None if a registered policy wrote it.
    """

    run_id: UUID
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    policy: str
    policy_version: int
    mutator: str | None = None
    mutator_version: int | None = None
    ensemble: tuple[str, ...] = ()
    strategy: str
    seed: int
    target: str
    unlock: bool
    forgeable: bool
    attested: bool = False
    state: ClaimState
    number: int
    candidate_id: UUID
    evaluations: int
    tokens: int
    seconds: float
    sources: tuple[SourceRun, ...] = ()
    at: datetime
    proposed_by: str | None = None
    author: str | None = None
    model: str | None = None
    learned: str | None = None

    @property
    def policy_label(self) -> str:
        """Name of the policy, the pair or the ensemble, as in ``Attempt.policy_label``."""
        return policy_label(self.ensemble, self.policy, self.policy_version, self.mutator, self.mutator_version)


class Attempt(Record):
    """Attempts of a policy with a strategy at a target of a problem version.

    Attributes:
        policy: ``slug@version``; for an ensemble all its policies, joined by ``+``.
        mutator: The policy that changes parents, if it is another one.
        runs: Number of runs; ``evaluations``, ``tokens`` and ``seconds`` are their total cost.
        reached: Runs that reached the target.
        unlocked_first: True if the first of all confirmed candidates is one of theirs.
        first: Their first confirmed candidate; None if no run reached the target.
    """

    @property
    def policy_label(self) -> str:
        """Joint name of policy and mutator."""
        return pair_name(self.policy, self.mutator)

    policy: str
    mutator: str | None
    strategy: str
    runs: int
    evaluations: int
    tokens: int
    seconds: float
    reached: int
    unlocked_first: bool
    first: UnlockRecord | None


class TargetUnlocks(Record):
    """Unlocks of a target of a problem version.

    Attributes:
        unlock: True if the target unlocks the problem.
        first: The first confirmed candidate.
        only: The only policy that reached the target while others tried, else None. A policy with a mutator counts
            separately: ``slug@version with slug@version``.
        never: Policies that tried and never reached it, named in the same way.
        attempts: All attempts.
    """

    target: str
    unlock: bool
    first: UnlockRecord | None
    only: str | None
    never: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class ProblemUnlocks(Record):
    """Unlocks of all targets of one problem version."""

    problem: str
    version: int
    evaluator_digest: str
    forgeable: bool
    attested: bool = False
    targets: tuple[TargetUnlocks, ...]


class ObjectiveRecord(Record):
    """A feasible candidate that improved on the best value of one objective over all earlier runs.

    Attributes:
        value: Value in the author's units.
        forgeable: True if the candidate shared a process with its evaluator.
        attested: True if an external evaluator submitted the value.
        evaluations: Evaluations that its run had spent.
    """

    objective: str
    value: float
    forgeable: bool = False
    attested: bool = False
    run_id: UUID
    number: int
    candidate_id: UUID
    policy: str | None
    strategy: str
    seed: int
    evaluations: int
    at: datetime


class PolicyBest(Record):
    """The best candidate of a policy on a problem version, over all its runs.

    Attributes:
        policy: The proposing policy, the first one of an ensemble.
        ensemble: All policies as ``slug@version``, if a role has several.
        runs: Runs with a feasible candidate.
        run_id: The run of the candidate.
    """

    policy: str
    policy_version: int
    mutator: str | None = None
    mutator_version: int | None = None
    ensemble: tuple[str, ...] = ()
    runs: int
    run_id: UUID
    best: RankedCandidate

    @property
    def policy_label(self) -> str:
        """Name of the policy, the pair or the ensemble, as in ``UnlockRecord.policy_label``."""
        return policy_label(self.ensemble, self.policy, self.policy_version, self.mutator, self.mutator_version)


class MatrixCell(Record):
    """Results of a policy version, alone or with a mutator, on a problem version.

    Attributes:
        mutator_id: The policy that changed parents; None if the policy did.
        unlocked: Runs that unlocked the problem.
        fewest: Evaluations of the cheapest of these runs; None without any.
    """

    problem_id: UUID
    policy_id: UUID
    mutator_id: UUID | None
    runs: int
    ended: int
    unlocked: int
    fewest: int | None

    @property
    def pair(self) -> tuple[UUID, UUID | None]:
        """Policy and mutator of the runs."""
        return self.policy_id, self.mutator_id
