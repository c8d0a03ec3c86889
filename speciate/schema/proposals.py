"""Records of proposals from outside the service: prompts to answer, receipts and results (ADR 38)."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from speciate.domain.candidate import FailureKind
from speciate.domain.policy import PolicyRole
from speciate.schema.base import Record


class ShownProgram(Record):
    """A candidate as a prompt shows it.

    Attributes:
        number: Number in the run.
        program: Program text.
        rewards: Rewards by objective in the author's units, without held-out ones and those that only hidden cases
            count towards; None if it failed.
        failure: Why it has none.
        feedback: Named texts of its evaluation. Untrusted, like the program.
    """

    number: int
    program: str
    rewards: dict[str, float] | None
    failure: str | None
    feedback: dict[str, str]


class AskRecord(Record):
    """A prompt for a proposer outside the service.

    Attributes:
        ask: Token to send with the answer, which then inherits parents, inspirations, island and prompt.
        run_id: The run.
        role: ``propose`` for a program from scratch, ``mutate`` for a change of the first parent.
        parents: Programs to change or combine, the first is changed.
        inspirations: Further programs in the prompt.
        system: System message: role and form of the answer.
        user: User message: the problem, the programs and the request.
        seed: Seed for sampling an answer.
        seed_program: The problem's seed program; empty if there is none.
    """

    ask: UUID
    run_id: UUID
    role: PolicyRole
    parents: tuple[ShownProgram, ...]
    inspirations: tuple[ShownProgram, ...]
    system: str
    user: str
    seed: int
    seed_program: str


class ReceiptStatus(StrEnum):
    """Outcomes of a proposal when it arrives."""

    ACCEPTED = "accepted"
    """It will be evaluated."""
    DUPLICATE = "duplicate"
    """The run has the same program already; it receives that result and costs an evaluation."""
    REJECTED = "rejected"
    """It cannot be a candidate; it counts as a failed one and costs an evaluation, as an answer of a policy does."""
    REFUSED = "refused"
    """It is not in the run and costs nothing."""


class ProposalReceipt(Record):
    """Outcome of one proposal of a request.

    Attributes:
        index: Position of the proposal in the request, from 0.
        status: Outcome.
        number: Number of the candidate; None if it was refused.
        duplicate_of: Number of the earlier candidate with the same program.
        reason: Why it was rejected or refused; empty otherwise.
    """

    index: int
    status: ReceiptStatus
    number: int | None = None
    duplicate_of: int | None = None
    reason: str = ""


class ProposalState(StrEnum):
    """State of a proposed candidate."""

    PENDING = "pending"
    """Its evaluation, or the confirmation of a target that it meets, is not finished."""
    EVALUATED = "evaluated"
    """It has rewards."""
    FAILED = "failed"
    """It has none; ``failure`` says why."""
    DISCARDED = "discarded"
    """Its run ended before it was evaluated."""


class ProposalRecord(Record):
    """The result of a proposed candidate.

    Attributes:
        number: Number of the candidate in the run.
        state: State.
        candidate_id: Id of the candidate; None before it is evaluated.
        rewards: Rewards by objective in the author's units, until the run ends without held-out ones and those that
            only hidden cases count towards; None if it failed.
        scalar: Declared weighted sum of the normalized rewards; None without declared weights.
        targets: Names of the targets that the rewards meet, without refuted ones.
        confirmed: Those of them that a second evaluation confirmed for this candidate.
        refuted: What was measured, by name of each target that the rewards meet and a repeated evaluation missed.
        failure: Class of failure.
        failure_reason: Short machine-readable reason.
        failure_detail: Text about it. Untrusted.
        duplicate_of: Number of the earlier candidate whose result it has.
        feedback: Named texts of the evaluation. Untrusted.
        elite: True if it is in the archive, from which parents are drawn.
        best: True if it is the best candidate of the run.
    """

    number: int
    state: ProposalState
    candidate_id: UUID | None = None
    rewards: dict[str, float] | None = None
    scalar: float | None = None
    targets: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    refuted: dict[str, str] = Field(default_factory=dict)
    failure: FailureKind | None = None
    failure_reason: str | None = None
    failure_detail: str | None = None
    duplicate_of: int | None = None
    feedback: dict[str, str] = Field(default_factory=dict)
    elite: bool = False
    best: bool = False
