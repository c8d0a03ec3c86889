"""Data of one run in ``MemoryWorkStore``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from speciate.domain.candidate import Candidate, Evaluation, Individual
from speciate.domain.event import Event
from speciate.domain.guidance import Advice
from speciate.domain.rollout import Rollout
from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import GroupRef, LearnedVersion, Lease, RunContext, StoredGroup, StoredRollout, WorkKind
from speciate.runs.progress import NewWork, RunProgress
from speciate.search.strategy import Placement


@dataclass(slots=True)
class MemoryUnit:
    """A unit of work with its lease, and its external evaluations by program hash and seed."""

    new: NewWork
    state: str = "ready"
    attempt: int = 0
    token: UUID | None = None
    lease_until: float = 0.0
    reserved_tokens: int = 0
    external: dict[tuple[str, int], Evaluation | None] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryRun:
    """All data of a run."""

    context: RunContext
    progress: RunProgress = field(default_factory=RunProgress)
    events: list[Event] = field(default_factory=list)
    candidates: dict[int, Candidate] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)  # ordinal of the batch, by number of the candidate
    elites: dict[tuple[int, str], Placement] = field(default_factory=dict)
    claims: dict[tuple[str, int], Claim] = field(default_factory=dict)
    units: dict[UUID, MemoryUnit] = field(default_factory=dict)
    advice: dict[int, Advice] = field(default_factory=dict)
    running_since: float | None = None
    rollouts: dict[int, tuple[Rollout, ...]] = field(default_factory=dict)
    learned: LearnedVersion | None = None


def open_confirmations(run: MemoryRun) -> int:
    units = (unit for unit in run.units.values() if unit.state in {"ready", "leased", "parked"})
    return sum(unit.new.kind is WorkKind.CONFIRM for unit in units)


def holds(unit: MemoryUnit, lease: Lease) -> bool:
    return unit.state == "leased" and unit.token == lease.token


def stored_group(run: MemoryRun, ref: GroupRef) -> StoredGroup:
    rollouts = run.rollouts[ref.batch][ref.first : ref.first + ref.size]
    earned: list[list[tuple[float, ...] | None]] = [[] for _ in rollouts]
    for number in range(ref.number, ref.number + ref.count):
        candidate = run.candidates[number]
        place = (candidate.proposal.rollout or 0) - ref.first
        if 0 <= place < ref.size:
            earned[place].append(candidate.evaluation.rewards)
    return StoredGroup(
        rollouts[0].prompt,
        tuple(
            StoredRollout(rollout.completion.token_ids, rollout.completion.logprobs, tuple(rewards))
            for rollout, rewards in zip(rollouts, earned, strict=True)
        ),
    )


def ranked_elites(run: MemoryRun) -> list[Individual]:
    """Return the candidates of the archive, by their bounds if rewards are noisy."""
    held = {each.number: each.rewards for each in run.elites.values()}
    return [replace(run.candidates[number].individual, rewards=held[number]) for number in sorted(held)]


def earliest_claimant(run: MemoryRun, target: int) -> Claim | None:
    """Return a claim for the earliest unrefuted candidate that meets a target."""
    bit = 1 << target
    declared = run.context.problem.targets[target]
    for c in sorted(run.candidates.values(), key=lambda c: c.spent_evaluations):
        if c.targets & bit and not c.refuted & bit and c.duplicate_of is None:
            spent = (c.spent_evaluations, c.spent_tokens, c.spent_seconds)
            return Claim(declared.name, c.number, *spent, declared.unlock, ClaimState.PENDING)
    return None
