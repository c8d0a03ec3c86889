"""Records of candidates, rollouts, advice and the archive."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from speciate.domain.candidate import CandidateStatus, FailureKind
from speciate.domain.policy import PolicyRole
from speciate.schema.base import Record
from speciate.schema.runs import RankedCandidate


class CandidateRecord(Record):
    """A candidate without its texts."""

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
    """Rewards by objective in the author's units; None if it failed."""
    unmeasured: tuple[str, ...] = ()
    """Objectives that the evaluator did not measure: their rewards are the worst ends of the ranges."""
    scalar: float | None
    targets: tuple[str, ...]
    """Names of the targets that its rewards meet, without refuted ones."""
    refuted: dict[str, str] = Field(default_factory=dict)
    """What was measured, by name of each target that its rewards meet and a repeated evaluation missed."""
    repeats: tuple[dict[str, float] | str, ...] = ()
    """What the repeated evaluations measured: rewards by objective, or why there are none. Empty if no target was due
    for confirmation.
    """
    failure: FailureKind | None
    failure_reason: str | None
    duplicate_of: int | None
    """Number of the earlier candidate with the same program, or, for a rejected ``near_duplicate``, with the similar
    program.
    """
    program_hash: str
    tier: str
    """Isolation tier of its evaluation; ``attested`` if an external evaluator submitted the result."""
    wall_s: float
    cpu_s: float
    memory_bytes: int
    stopped_at: str | None
    """First stage of the cascade without rewards; None if all stages were evaluated."""
    reused_from: str | None = None
    """``run/number`` of the candidate of another run whose result it reuses."""
    origin: str | None = None
    """``run/number`` of the candidate, or name of the file, from which the run took a seed program."""
    attested_by: str | None = None
    """Name of the token that submitted the result; None if the service measured it."""
    environment: str | None = None
    """SHA-256 of the installed packages of the problem; None if it requires none."""
    carried_from: int | None = None
    """Number of the candidate whose output it received; None if it received none."""
    advice: int | None = None
    """Number of the advice in its prompt; None if the run writes no advice."""
    trial: int = 0
    """Position among the evaluations of its program, if rewards are noisy: all programs share the seed of each. -1 has
    a seed of its own.
    """
    evaluations: int = 1
    """Evaluations of which its rewards are the mean."""
    first: dict[str, float] | None = None
    """Rewards of its own evaluation, if its rewards are the mean of several."""
    error: dict[str, float] | None = None
    """Standard errors of that mean."""
    created_at: datetime

    def __repr__(self) -> str:
        return f"<candidate {self.number}: {self.rewards or self.failure_reason}>"

    @property
    def measured(self) -> dict[str, float | None]:
        """Rewards by objective, None for those that were not measured; empty if it failed."""
        return {name: None if name in self.unmeasured else value for name, value in (self.rewards or {}).items()}


class CandidateDetail(CandidateRecord):
    """A candidate with its texts. They come from models and programs: escape them wherever they are displayed."""

    program: str
    failure_detail: str | None
    artifacts: dict[str, str]
    """Named texts of its evaluation; `output` is what it computed, if the problem carries outputs."""
    rationale: str | None = None
    """What its author wrote beside the program; None if a policy of the service wrote it."""
    run_name: Annotated[str | None, SkipJsonSchema()] = Field(default=None, exclude_if=lambda name: name is None)
    """Name of its run when the export began; only exports have it."""
    run_tags: Annotated[tuple[str, ...] | None, SkipJsonSchema()] = Field(
        default=None, exclude_if=lambda tags: tags is None
    )
    """Tags of its run when the export began; only exports have them."""
    _notebook_view: Callable[["CandidateDetail"], str] | None = PrivateAttr(None)

    def _repr_html_(self) -> str | None:
        return None if self._notebook_view is None else self._notebook_view(self)


class RolloutRecord(Record):
    """A completion with its request."""

    id: UUID
    run_id: UUID
    policy_id: UUID
    batch: int
    role: PolicyRole
    prompt_digest: str
    seed: int
    prompt_tokens: int
    completion_tokens: int
    """Tokens of the completion, reasoning included."""
    reasoning_tokens: int = 0
    """Tokens spent on reasoning, as the endpoint reports them."""
    latency_s: float
    cost: float | None = None
    """US dollars, if the policy reports them."""
    finish_reason: str
    mean_logprob: float | None
    answers: int
    reason: str | None
    advice: int | None = None
    """Number of the advice in the prompt, or, in role ``advise``, of the advice to improve; None if the run writes no
    advice.
    """
    author: str | None = None
    """Name of the token that sent it; None if the service sampled it."""
    model: str | None = None
    """Model that wrote it, as its author names it. Untrusted text."""
    created_at: datetime


class RolloutDetail(RolloutRecord):
    system: str
    user: str
    completion: str


class ChatMessage(Record):
    role: str
    content: str


class RolloutAnswer(Record):
    """The candidate of one answer of a completion."""

    number: int
    """Number of the candidate in the run; its export has the program."""
    rewards: dict[str, float] | None
    """Rewards by objective in the author's units; None if it failed."""
    scalar: float | None
    """Declared weighted sum of the normalized rewards; None if it failed or the problem declares no weights."""
    targets: tuple[str, ...]
    failure: FailureKind | None
    failure_reason: str | None
    duplicate_of: int | None
    """Number of the earlier candidate with the same program."""


class ExportedRollout(Record):
    """A completion in an export for trainers, with the rewards of its answers."""

    id: UUID
    run_id: UUID
    problem: str
    """``name@version``."""
    policy: str
    """``name@version``."""
    batch: int
    role: PolicyRole
    seed: int
    prompt: tuple[ChatMessage, ...] | str
    """Messages for a policy with prompt format ``chat``, else one text."""
    completion: tuple[ChatMessage, ...] | str
    """Messages or text, as ``prompt``. Empty if retention deleted it."""
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    token_ids: tuple[int, ...] | None
    """Ids of the completion's tokens; None if the endpoint reported none."""
    logprobs: tuple[float, ...] | None
    """Log-probabilities of the completion's tokens, natural logarithm; None unless the policy requests them
    (``sampling.logprobs``) and its endpoint reports all.
    """
    answers: tuple[RolloutAnswer, ...]
    """The candidates read from the completion, in the order written."""
    reason: str | None
    advice: int | None
    """Number of the advice in the prompt, or, in role ``advise``, of the advice to improve."""
    created_at: datetime


class AdviceRecord(Record):
    """A piece of advice that a run wrote for its own prompts."""

    number: int
    """Ordinal of the batch that wrote it. 0 stands for no advice, which every run also tries."""
    parent: int = 0
    """Number of the advice that it was meant to improve; 0 for a new idea."""
    rollout_id: UUID | None = None
    """The rollout that wrote it; None for no advice and for hints."""
    author: str | None = None
    """Name of the token whose holder gave it as a hint; None if a policy wrote it."""
    text: str = ""
    """At most 1,000 characters. It comes from a model: escape it wherever it is displayed."""
    judged: int
    """Evaluated answers to prompts with this advice."""
    won: int
    """Those that entered the archive."""
    lives: bool
    """True if new prompts may use it."""
    created_at: datetime | None = None


class ArchiveCell(Record):
    """A cell of the archive with the candidate that holds it."""

    island: int
    cell: str
    fitness: float
    elite: RankedCandidate
