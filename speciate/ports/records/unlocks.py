"""What was unlocked, by whom and at which cost."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.domain.target import ClaimState
from speciate.ports.records.base import Record

WITH: Final = " with "
"""What stands between a policy and its mutator where both are named as one."""


def together(policy: str, mutator: str | None) -> str:
    """Return what a policy and who changes parents for it are called, as ``slug@version``; alone where it does both."""
    return policy if mutator in {None, policy} else f"{policy}{WITH}{mutator}"


class UnlockRecord(Record):
    """A reached target of a run with what had been spent.

    Attributes:
        policy: The policy that was asked, the first one of several.
        ensemble: Every policy that was asked, as ``slug@version``, where a role of the run has several: what an
            ensemble reached is nobody's own.
        unlock: Whether the target is the one that unlocks the problem.
        forgeable: Whether candidates of this problem share a process with what scores them. Evaluating one again is
            no remedy for that, so the mark stays on what was confirmed.
        evaluations: Evaluations spent up to and including the candidate.
        tokens: Tokens spent when it was committed.
        seconds: Running seconds spent when it was committed.
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
    state: ClaimState
    number: int
    candidate_id: UUID
    evaluations: int
    tokens: int
    seconds: float
    at: datetime

    @property
    def who(self) -> str:
        """Who is asked: a policy, one with its mutator, or all of an ensemble, as ``Attempt.who`` says it."""
        mutator = f"{self.mutator}@{self.mutator_version}" if self.mutator else None
        return " + ".join(self.ensemble) or together(f"{self.policy}@{self.policy_version}", mutator)


class Attempt(Record):
    """Who tried a target of a problem version, how much of it, and with what success.

    Attributes:
        policy: ``slug@version``; of an ensemble all its policies, joined by ``+``.
        mutator: Who changes parents, if it is another one.
        runs: Runs that tried, and what they spent together.
        reached: Those that reached the target.
        unlocked_first: Whether the first of all confirmed candidates is among theirs.
        first: Their first confirmed candidate; None where they never reached the target.
    """

    @property
    def who(self) -> str:
        """Who is asked, whatever the strategy."""
        return together(self.policy, self.mutator)

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
    """Who reached a target of a problem version.

    Attributes:
        unlock: Whether it is the one that unlocks the problem.
        first: The first confirmed candidate of all.
        only: Who alone has reached it, where others have tried; else None. What a policy reaches with a mutator is not
            its own: ``slug@version with slug@version``.
        never: Who has tried and never reached it, called alike.
        attempts: Everybody who tried.
    """

    target: str
    unlock: bool
    first: UnlockRecord | None
    only: str | None
    never: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class ProblemUnlocks(Record):
    """Who unlocked a problem version, who alone, and who never. Another version has a record of its own."""

    problem: str
    version: int
    evaluator_digest: str
    forgeable: bool
    targets: tuple[TargetUnlocks, ...]


class ObjectiveRecord(Record):
    """A candidate that was better in one objective than every earlier one of any run, and met all constraints.

    Attributes:
        value: In the author's units.
        forgeable: Whether the candidate shared a process with what scored it.
        evaluations: Evaluations that its run had spent.
    """

    objective: str
    value: float
    forgeable: bool = False
    run_id: UUID
    number: int
    candidate_id: UUID
    policy: str | None
    strategy: str
    seed: int
    evaluations: int
    at: datetime


class MatrixCell(Record):
    """What a policy version, alone or with a mutator, did on a problem version.

    Attributes:
        mutator_id: Who changed parents; None where the policy did itself.
        unlocked: Runs that unlocked it.
        fewest: Evaluations of the cheapest of these; None without any.
    """

    problem_id: UUID
    policy_id: UUID
    mutator_id: UUID | None
    runs: int
    ended: int
    unlocked: int
    fewest: int | None

    @property
    def asked(self) -> tuple[UUID, UUID | None]:
        """Who was asked in its runs."""
        return self.policy_id, self.mutator_id
