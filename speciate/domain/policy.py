"""A policy: who is asked for candidates, and how."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, JsonValue, model_validator

from speciate.domain.values import IDENTIFIER, KEY_ID, WEB_ADDRESS, Finite, Slug, Value, digest_of


class PromptFormat(StrEnum):
    """How a policy is asked."""

    CHAT = "chat"
    COMPLETION = "completion"


class EditFormat(StrEnum):
    """How a policy writes a changed program."""

    REWRITE = "rewrite"
    """The whole program in one fenced block."""
    DIFF = "diff"
    """SEARCH/REPLACE blocks against the parent."""


class PolicyRole(StrEnum):
    """What a policy was asked to do for a candidate."""

    SEED = "seed"
    """Nothing: the candidate is the problem's own seed program."""
    PROPOSE = "propose"
    """Write from scratch."""
    MUTATE = "mutate"
    """Change parents."""
    ADVISE = "advise"
    """Write advice for changes; no candidate comes of it."""


class Sampling(Value):
    """How completions are drawn.

    Attributes:
        temperature: Softmax temperature.
        top_p: Nucleus mass.
        max_tokens: Longest completion, in tokens.
        logprobs: Whether token log-probabilities are asked for.
    """

    temperature: float = Field(default=1.0, ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=2048, ge=1, le=1_000_000)
    logprobs: bool = False


class Training(Value):
    """Where a checkpoint stands in its training.

    Attributes:
        digest: SHA-256 of what defines the training: checkpoints with one digest are points of one course.
        step: Updates made.
        entropy: Mean token entropy over the course up to here, nats per token.
        reward: Mean reward of an answer at the same times.
    """

    digest: str = Field(max_length=200)
    step: int = Field(ge=0)
    entropy: tuple[Finite, ...] = Field(default=(), max_length=1000)
    reward: tuple[Finite, ...] = Field(default=(), max_length=1000)


class DigestFrom(StrEnum):
    """How the digest of served weights is known."""

    ENDPOINT = "endpoint"
    """The endpoint states it."""
    FILES = "files"
    """The files that the endpoint names were read."""
    DECLARED = "declared"
    """Whoever registered the policy says so; nobody has checked it."""


class ServedWeights(Value):
    """What an endpoint said of a policy when it was registered; another answer later on is another policy.

    Attributes:
        root: Folder or repository that the weights come from, as the endpoint calls it.
        base_root: The same for the base model of an adapter.
        base_digest: SHA-256 of that base model's weights where it can be known.
        digest_from: How ``checkpoint_digest`` is known; None where it is not.
    """

    root: str | None = Field(default=None, max_length=4000)
    base_root: str | None = Field(default=None, max_length=4000)
    base_digest: str | None = Field(default=None, max_length=200)
    digest_from: DigestFrom | None = None


class Policy(Value):
    """A policy as it was registered; storage adds id and version.

    Attributes:
        slug: Name; all versions of a policy share it.
        kind: Which client asks it, a key of ``speciate.policies.KINDS``.
        description: One line for people.
        base_url: Endpoint that speaks the OpenAI protocol, such as ``http://127.0.0.1:8000/v1``.
        model: Model or adapter name at that endpoint.
        api_key_env: Name of the environment variable that holds the key on the workers; never the key itself.
        api_key_id: Id under which the service keeps the key, sealed; the service sets it where a key was handed in.
        training_method: How it was trained (``vpo``, ``grpo``, ``base``, …), for the record.
        checkpoint_digest: SHA-256 of the served weights where known.
        training: Which training it is a checkpoint of, where known.
        served: What its endpoint said of it at registration; None where it was not asked.
        prompt_format: Whether it is asked by chat or by completion.
        codec: A task's own language in which a tiny model is asked, a key of ``speciate.prompts.codecs.CODECS``; None
            means English.
        edit_format: Whether it rewrites programs or sends diffs.
        answers_per_rollout: m, the number of programs in one completion.
        prompt_tokens: Longest prompt, in tokens; each byte of UTF-8 is counted as one, so that it holds whatever the
            tokenizer is. What does not fit is left out, the least useful first. A codec's prompts are not bounded.
        sampling: How completions are drawn.
        timeout_s: Seconds one request may take.
        options: Options of the client, checked by its own config model.
    """

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"prompt_tokens", "training", "api_key_id", "served"})

    slug: Slug
    kind: str = Field(min_length=1, max_length=80)
    description: str = Field(default="", max_length=2000)
    base_url: str | None = Field(default=None, max_length=2000, pattern=WEB_ADDRESS)
    model: str | None = Field(default=None, max_length=500)
    api_key_env: str | None = Field(default=None, max_length=200, pattern=IDENTIFIER)
    api_key_id: str | None = Field(default=None, max_length=36, pattern=KEY_ID)
    training_method: str | None = Field(default=None, max_length=80)
    checkpoint_digest: str | None = Field(default=None, max_length=200)
    training: Training | None = None
    served: ServedWeights | None = None
    prompt_format: PromptFormat = PromptFormat.CHAT
    codec: str | None = Field(default=None, min_length=1, max_length=80)
    edit_format: EditFormat = EditFormat.REWRITE
    answers_per_rollout: int = Field(default=1, ge=1, le=64)
    prompt_tokens: int = Field(default=120_000, ge=2_000, le=10_000_000)
    sampling: Sampling = Sampling()
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _codec_completes(self) -> Self:
        if self.codec is not None and self.prompt_format is not PromptFormat.COMPLETION:
            raise ValueError("a policy with a codec is asked by completion: set prompt_format to 'completion'")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the registration: two registrations with one digest are the same version."""
        # That there is a key is part of it, which one is not: keys are exchanged without another version.
        kept = self if self.api_key_id is None else self.model_copy(update={"api_key_id": "stored"})
        return digest_of(kept.stored_json())

    @property
    def writes_text(self) -> bool:
        """True if it answers in free text: it chats, and no codec restricts it to programs."""
        return self.codec is None and self.prompt_format is PromptFormat.CHAT

    def answers_for(self, role: PolicyRole) -> int:
        """Return how many answers one completion holds: a tiny model changes one candidate at a time."""
        return 1 if self.codec is not None and role is PolicyRole.MUTATE else self.answers_per_rollout

    def tokens_for(self, role: PolicyRole) -> int:
        """Return the longest completion, in tokens: each of several answers has its share of ``max_tokens``."""
        return self.sampling.max_tokens * self.answers_for(role) // self.answers_per_rollout

    def definition(self) -> dict[str, Any]:
        """Return the registration as JSON values."""
        return self.model_dump(mode="json")
