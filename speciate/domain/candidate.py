"""Candidates and what became of them. A failure is a value; it never ends a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speciate.domain.policy import PolicyRole


class CandidateStatus(StrEnum):
    """Where a candidate is in its life; the first two live in the work table, the last two in the candidates table."""

    PROPOSED = "proposed"
    EVALUATING = "evaluating"
    EVALUATED = "evaluated"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why a candidate has no rewards."""

    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    REJECTED = "rejected"
    """Never evaluated: the completion held no program, a diff did not apply, a protected region changed, …"""


SANDBOX_LOST = frozenset({"supervisor_killed", "evaluator_supervisor_killed"})
"""Reasons of failures where the sandbox ended under a program: somebody killed it, or memory ran out on the machine."""

NOT_THE_PROGRAMS_FAULT = frozenset({"worker_lost", "batch_deadline"}) | SANDBOX_LOST
"""Reasons of failures that say nothing about the program: the same one is evaluated when it comes again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate failed.

    Attributes:
        kind: The class of failure.
        reason: Short machine-readable reason within the kind, such as ``no_code_block``; counted per run.
        detail: Text for people and prompts; hostile, since it may quote the candidate.
    """

    kind: FailureKind
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation of one program gave: either ``rewards`` or ``failure``.

    Attributes:
        rewards: Raw rewards, shape (d,), declared order; None on failure.
        failure: Why there are none; None on success.
        tier: Containment that was in force, such as ``A``.
        wall_s: Seconds on the clock, by the supervisor's measure.
        cpu_s: Seconds of processor time, by the supervisor's measure.
        memory_bytes: Peak resident memory, by the supervisor's measure.
        artifacts: Named texts for feedback (``stderr``, evaluator notes). Nothing from hidden cases is in here.
        stopped_at: Stage of the cascade that gave no rewards any more: an earlier one's rule kept the candidate out, or
            it failed there. The rewards of that stage and later ones are the bad ends of their ranges. None when all
            was measured.
    """

    rewards: tuple[float, ...] | None = None
    failure: Failure | None = None
    tier: str = "none"
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    artifacts: Mapping[str, str] = field(default_factory=dict)
    stopped_at: str | None = None

    def __post_init__(self) -> None:
        if (self.rewards is None) == (self.failure is None):
            raise ValueError("an evaluation has either rewards or a failure")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A child as it was read from a completion, before evaluation.

    Attributes:
        program: Program text; empty when the completion held none.
        program_hash: SHA-256 of the text.
        role: What the policy was asked to do.
        island: Island the parents came from.
        parents: Run-wide numbers of the parents, the one that was changed first.
        inspirations: Run-wide numbers of further programs shown in the prompt.
        rollout: Position of its rollout within the batch; None for the seed.
        answer: Position among the answers of that rollout, counted from 0.
        failure: Set when it was rejected on reading.
        policy: Position of the policy that was asked among those of its role.
        advice: Number of the advice that the prompt carried; None where the run writes none.
    """

    program: str
    program_hash: str
    role: PolicyRole
    island: int = 0
    parents: tuple[int, ...] = ()
    inspirations: tuple[int, ...] = ()
    rollout: int | None = None
    answer: int = 0
    failure: Failure | None = None
    policy: int = 0
    advice: int | None = None


@dataclass(frozen=True, slots=True)
class Individual:
    """A member of the population as strategies and prompts see it.

    Attributes:
        number: Run-wide number, counted from 1 in order of proposal.
        program: Program text.
        rewards: Raw rewards, shape (d,), or None when it failed.
        failure: Why it failed, or None.
        artifacts: Named texts for feedback.
        island: Island it was made on.
        parents: Run-wide numbers of its parents.
        stopped_at: Stage of the cascade from which on nothing was measured; None when all was.
    """

    number: int
    program: str
    rewards: tuple[float, ...] | None
    failure: Failure | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    island: int = 0
    parents: tuple[int, ...] = ()
    stopped_at: str | None = None
