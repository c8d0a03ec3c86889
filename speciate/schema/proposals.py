"""Records of proposals from outside the service: prompts to answer, receipts and results (ADR 38)."""

from enum import StrEnum
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from speciate.domain.candidate import FailureKind
from speciate.domain.policy import PolicyRole
from speciate.domain.values import MAX_PROGRAM_BYTES, Value
from speciate.schema.base import Record


class ShownProgram(Record):
    """A candidate as a prompt shows it."""

    number: int
    program: str
    rewards: dict[str, float] | None
    """Rewards by objective in the author's units, without held-out ones and those that only hidden cases count towards;
    None if it failed.
    """
    failure: str | None
    """Why it has none."""
    feedback: dict[str, str]
    """Named texts of its evaluation. Untrusted, like the program."""


class AskRecord(Record):
    """A prompt for a proposer outside the service."""

    ask: UUID
    """Token to send with the answer, which then inherits parents, inspirations, island and prompt."""
    run_id: UUID
    role: PolicyRole
    """``propose`` for a program from scratch, ``mutate`` for a change of the first parent."""
    parents: tuple[ShownProgram, ...]
    """Programs to change or combine, the first is changed."""
    inspirations: tuple[ShownProgram, ...]
    """Further programs in the prompt."""
    system: str
    """System message: role and form of the answer."""
    user: str
    """User message: the problem, the programs and the request."""
    seed: int
    """Seed for sampling an answer."""
    seed_program: str
    """The problem's seed program; empty if there is none."""


Numbers = Annotated[tuple[Annotated[int, Field(ge=1, lt=2**62)], ...], Field(max_length=16)]
_Tokens = Annotated[int, Field(ge=0, le=10**9)]


class ProposedCandidate(Value):
    """A proposal: either `program` or `completion`."""

    program: str | None = Field(default=None, max_length=MAX_PROGRAM_BYTES)
    """The whole program, or for a program with several files the changed files under their headings."""
    completion: str | None = Field(default=None, max_length=8 * MAX_PROGRAM_BYTES)
    """Text that answers the prompt of `ask`, as a model writes it. Its program is read from it."""
    parents: Numbers = ()
    """Numbers of the candidates that it changes, the main one first. Regions that the problem protects are those of the
    first parent."""
    inspirations: Numbers = ()
    """Numbers of further candidates that its author saw."""
    ask: UUID | None = None
    """Token of the prompt that it answers, in place of `parents` and `inspirations`."""
    rationale: str = Field(default="", max_length=20_000)
    """Why it should be better, in words."""
    model: Annotated[str, StringConstraints(max_length=200)] | None = None
    """Model that wrote it."""
    prompt_tokens: _Tokens = 0
    """Tokens read. They count towards the budget of the run."""
    completion_tokens: _Tokens = 0
    """Tokens written, likewise."""
    cost: float = Field(default=0.0, ge=0, le=1e6)
    """What it cost, in US dollars."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.program is None) == (self.completion is None):
            raise ValueError("expected either 'program' or 'completion'")
        if self.ask is not None and (self.parents or self.inspirations):
            raise ValueError("expected either 'ask' or 'parents' and 'inspirations'")
        return self


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
    """Outcome of one proposal of a request."""

    index: int
    """Position of the proposal in the request, from 0."""
    status: ReceiptStatus
    number: int | None = None
    """Number of the candidate; None if it was refused."""
    duplicate_of: int | None = None
    """Number of the earlier candidate with the same program."""
    reason: str = ""
    """Why it was rejected or refused; empty otherwise."""


class ProposalState(StrEnum):
    """State of a proposed candidate."""

    PENDING = "pending"
    """Its evaluation is not finished."""
    EVALUATED = "evaluated"
    """It has rewards."""
    FAILED = "failed"
    """It has none; ``failure`` says why."""
    DISCARDED = "discarded"
    """Its run ended before it was evaluated."""


class ProposalRecord(Record):
    """The result of a proposed candidate."""

    number: int
    """Number of the candidate in the run."""
    state: ProposalState
    next: str = ""
    """What its proposer can do next, in one line."""
    ahead: int = 0
    """Evaluations of the service that are queued before a pending one, running ones included."""
    candidate_id: UUID | None = None
    """Id of the candidate; None before it is evaluated."""
    rewards: dict[str, float] | None = None
    """Rewards by objective in the author's units, until the run ends without held-out ones and those that only hidden
    cases count towards; None if it failed.
    """
    summary: str = ""
    """Its rewards, processor time, and what the next target lacks, as prompts show them; empty if it failed."""
    scalar: float | None = None
    """Declared weighted sum of the normalized rewards; None without declared weights, and until the run ends if one of
    these rewards is left out.
    """
    targets: tuple[str, ...] = ()
    """Names of the targets that the rewards meet, without refuted ones."""
    confirming: tuple[str, ...] = ()
    """Those of them that a second evaluation is deciding."""
    confirmed: tuple[str, ...] = ()
    """Those of them that a second evaluation confirmed for this candidate."""
    confirmed_by: dict[str, int] = Field(default_factory=dict)
    """Those of them that an earlier candidate confirmed, with its number: a target is confirmed once in a run."""
    refuted: dict[str, str] = Field(default_factory=dict)
    """What was measured, by name of each target that the rewards meet and a repeated evaluation missed."""
    failure: FailureKind | None = None
    failure_reason: str | None = None
    """Short machine-readable reason."""
    failure_detail: str | None = None
    """Text about it: of a traceback, the message and its place; the candidate has all of it. Untrusted."""
    duplicate_of: int | None = None
    """Number of the earlier candidate whose result it has."""
    feedback: dict[str, str] = Field(default_factory=dict)
    """Named texts of the evaluation, without an output, which the candidate has. Untrusted."""
    elite: bool = False
    """True if it is in the archive, from which parents are drawn."""
    best: bool = False
    """True if it is the best candidate of the run."""
    standing: str = ""
    """Which candidate is the best of the run and why, in one line."""

    def waited_for(self, *, settled: bool = True) -> bool:
        """Return True if it is evaluated and, with ``settled``, no repeated evaluation will change it."""
        return self.state is not ProposalState.PENDING and not (settled and self.confirming)
