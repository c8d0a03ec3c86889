"""Candidates of a run, the answers that they come from, and what people say of them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.candidate import CandidateStatus, FailureKind
from speciate.domain.policy import PolicyRole
from speciate.ports.records.base import Record


class CandidateRecord(Record):
    """A candidate without its texts.

    Attributes:
        rewards: Rewards by objective in the author's units; None when it failed.
        targets: Names of the targets its rewards meet, confirmed or not.
        duplicate_of: Number of the earlier candidate whose program is the same; where it is rejected as a
            ``near_duplicate``, of the one that it is too much like.
        reused_from: ``run/number`` of the candidate of another run whose result it has.
        advice: Number of the advice that its prompt carried; None where the run writes none.
        tier: Containment under which it was evaluated.
        stopped_at: Stage of the cascade that gave no rewards any more; None when all was measured.
    """

    id: UUID
    run_id: UUID
    number: int
    status: CandidateStatus
    role: PolicyRole
    policy_id: UUID | None
    rollout_id: UUID | None
    island: int
    parents: tuple[int, ...]
    inspirations: tuple[int, ...]
    rewards: dict[str, float] | None
    scalar: float | None
    targets: tuple[str, ...]
    failure: FailureKind | None
    failure_reason: str | None
    duplicate_of: int | None
    program_hash: str
    tier: str
    wall_s: float
    cpu_s: float
    memory_bytes: int
    stopped_at: str | None
    reused_from: str | None = None
    advice: int | None = None
    created_at: datetime


class CandidateDetail(CandidateRecord):
    """A candidate with its texts. All of them come from models or programs: never trust them where they are shown."""

    program: str
    failure_detail: str | None
    artifacts: dict[str, str]


class ExportedCandidate(CandidateDetail):
    """A line of an export, which says by itself what its run is called; a note of 4,000 characters is not repeated.

    Attributes:
        run_name: What people call the run, as the export began. Hostile text.
        run_tags: Words that it shares with other runs.
    """

    run_name: str = ""
    run_tags: tuple[str, ...] = ()


class RolloutRecord(Record):
    """A completion with what was asked for it.

    Attributes:
        advice: Number of the advice that the prompt carried, or, in role ``advise``, was to improve on; None where the
            run writes none.
    """

    id: UUID
    run_id: UUID
    policy_id: UUID
    batch: int
    role: PolicyRole
    prompt_digest: str
    seed: int
    prompt_tokens: int
    completion_tokens: int
    latency_s: float
    finish_reason: str
    mean_logprob: float | None
    answers: int
    reason: str | None
    advice: int | None = None
    created_at: datetime


class RolloutDetail(RolloutRecord):
    """A rollout with its texts."""

    system: str
    user: str
    completion: str


class AdviceRecord(Record):
    """A piece of advice that a run wrote for its own prompts. Its text comes from a model: never trust it where shown.

    Attributes:
        number: Ordinal of the batch that wrote it; 0 is no advice, which is always tried as well.
        parent: Number of the piece that it was to improve on; 0 for a new idea.
        rollout_id: The rollout that wrote it; None for no advice.
        text: What it says, at most 1,000 characters.
        judged: Answers to prompts that carried it.
        won: Those that took a place in the archive.
        lives: Whether prompts may still carry it.
    """

    number: int
    parent: int = 0
    rollout_id: UUID | None = None
    text: str = ""
    judged: int
    won: int
    lives: bool
    created_at: datetime | None = None


class EliteRecord(Record):
    """The holder of a cell."""

    island: int
    cell: str
    number: int
    candidate_id: UUID
    fitness: float
    rewards: dict[str, float]
