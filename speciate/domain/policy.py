"""Policies: endpoints and programs that propose candidates."""

import json
import shlex
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, JsonValue, model_validator

from speciate.domain.documented import Flag, flag_of, option_names
from speciate.domain.learning import Lineage
from speciate.domain.values import IDENTIFIER, KEY_ID, WEB_ADDRESS, Finite, Slug, Value, digest_of

EXTERNAL: Final = "external"
"""Kind of policies that propose from outside the service, and name of the one that every project has."""

MUTATOR: Final = "mutator"
"""Name of the policy that edits programs at random; every project has it."""
_EDITORS: Final = frozenset({"polish", "program_mutator"})
"""Kinds of policies that edit programs, whatever a prompt says."""
ARGUMENTS: Final = ("slug", "kind", "api_key_id")
"""Fields of a policy for which the command line has no option of the same name and form."""


class PromptFormat(StrEnum):
    """Endpoint that receives the prompt."""

    CHAT = "chat"
    COMPLETION = "completion"


class EditFormat(StrEnum):
    """Form of a changed program in a completion."""

    REWRITE = "rewrite"
    """The whole program, or the block of it that may change, in one code fence."""
    DIFF = "diff"
    """SEARCH/REPLACE blocks against the parent."""


class PromptStyle(StrEnum):
    STANDARD = "standard"
    """Problem, rewards, targets, further programs and feedback."""
    COMPACT = "compact"
    """A few sentences and the code to change, for small models; whole programs in Python only."""
    PREFILLED = "prefilled"
    """Compact, and the completion continues an opened code block; needs a server that continues messages."""
    SCAFFOLDED = "scaffolded"
    """Prefilled, and of several answers each is a request of its own that continues the answers before it."""

    @property
    def is_compact(self) -> bool:
        return self is not PromptStyle.STANDARD

    @property
    def opens_reply(self) -> bool:
        """True if the begin of the reply is sent with the prompt."""
        return self in (PromptStyle.PREFILLED, PromptStyle.SCAFFOLDED)


class PolicyRole(StrEnum):
    SEED = "seed"
    """None: the candidate is a seed program."""
    PROPOSE = "propose"
    """Write a program from scratch."""
    MUTATE = "mutate"
    """Change parents."""
    POLISH = "polish"
    """Improve the numbers of a parent; the service's own polisher does it in every run."""
    REPEAT = "repeat"
    """None: the program of an earlier candidate is evaluated again, since its rewards are noisy."""
    ADVISE = "advise"
    """Write advice for changes; it yields no candidate."""

    @property
    def asks_policy(self) -> bool:
        """True if a policy of the run does it."""
        return self in (PolicyRole.PROPOSE, PolicyRole.MUTATE, PolicyRole.ADVISE)


class Sampling(Value):
    temperature: float = Field(default=1.0, ge=0, le=10)
    """Softmax temperature; with 0 the policy is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Probability mass of nucleus sampling."""
    max_tokens: int = Field(default=2048, ge=1, le=1_000_000)
    """Longest completion, in tokens."""
    logprobs: bool = False
    """Request token log-probabilities, to measure entropy."""


class Price(Value):
    """Price of tokens, in US dollars per million."""

    input: float = Field(default=0.0, ge=0, le=1e6)
    """US dollars per million prompt tokens; 0 for both prices: unknown or free."""
    output: float = Field(default=0.0, ge=0, le=1e6)
    """US dollars per million completion tokens."""

    @property
    def dearest(self) -> float:
        """Highest price of a token, in US dollars."""
        return max(self.input, self.output) / 1e6

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (self.input * prompt_tokens + self.output * completion_tokens) / 1e6


class Training(Value):
    """Position of a checkpoint in its training."""

    digest: str = Field(max_length=200)
    """SHA-256 of the training's definition, shared by all its checkpoints."""
    step: int = Field(ge=0)
    """Updates made."""
    entropy: tuple[Finite, ...] = Field(default=(), max_length=1000)
    """Mean token entropy of the training curve up to this checkpoint, nats per token."""
    reward: tuple[Finite, ...] = Field(default=(), max_length=1000)
    """Mean reward of an answer at the same points of the curve."""


class DigestFrom(StrEnum):
    """Source of the digest of served weights."""

    ENDPOINT = "endpoint"
    """Reported by the endpoint."""
    FILES = "files"
    """Computed from the files that the endpoint names."""
    DECLARED = "declared"
    """Declared at registration, unverified."""


class ServedWeights(Value):
    """Weights that an endpoint reported at registration. If it reports others later, they need a new policy version."""

    root: str | None = Field(default=None, max_length=4000)
    """Folder or repository of the weights, as named by the endpoint."""
    base_root: str | None = Field(default=None, max_length=4000)
    """The same for the base model of an adapter."""
    base_digest: str | None = Field(default=None, max_length=200)
    """SHA-256 of that base model's weights, if known."""
    digest_from: DigestFrom | None = None
    """Source of ``checkpoint_digest``; None if unknown."""


Trace = tuple[tuple[dict[str, Finite], ...], ...]
"""For each prompt and each position of its greedy continuation, the likeliest tokens with their log-probabilities."""


class Probe(Value):
    """What tells from an endpoint's answers which weights it samples from."""

    prompts: tuple[str, ...]
    """Prompts as completion endpoints read them."""
    trained: Trace
    """Of the trained weights, at the end of the training."""
    base: Trace
    """Of the weights that the training began with."""


class Policy(Value):
    """A policy as it was registered; storage adds id and version."""

    omitted_at_default: ClassVar[frozenset[str]] = frozenset(
        {"prompt_tokens", "training", "api_key_id", "served", "price", "lineage", "prompt_style", "probe"}
    )

    slug: Slug
    """Name: lower-case words joined by hyphens. A changed definition becomes its next version."""
    kind: str = Field(min_length=1, max_length=80)
    """Kind of client, a key of ``speciate.policies.KINDS``."""
    description: str = Field(default="", max_length=2000)
    """One line for people."""
    base_url: str | None = Field(default=None, max_length=2000, pattern=WEB_ADDRESS)
    """Endpoint that speaks the OpenAI protocol, such as ``http://127.0.0.1:8000/v1``."""
    model: str | None = Field(default=None, max_length=500)
    """Model or adapter name at that endpoint."""
    api_key_env: str | None = Field(default=None, max_length=200, pattern=IDENTIFIER)
    """Name of the environment variable that holds the key on the workers; never the key itself."""
    api_key_id: str | None = Field(default=None, max_length=36, pattern=KEY_ID)
    """Id of the sealed key; the service sets it if a key was submitted."""
    training_method: str | None = Field(default=None, max_length=80)
    """Training method (``vpo``, ``grpo``, ``base``, …), for the record."""
    checkpoint_digest: str | None = Field(default=None, max_length=200)
    """SHA-256 of the served weights; by default as the endpoint reports."""
    training: Training | None = None
    """Training of which it is a checkpoint, if known."""
    lineage: Lineage | None = None
    """Origin, if a run learned it."""
    probe: Probe | None = None
    """Log-probabilities that verify what its endpoint samples from; None if its training stored none."""
    served: ServedWeights | None = None
    """Weights that its endpoint reported at registration; None if unknown."""
    prompt_format: PromptFormat = PromptFormat.CHAT
    """Chat or completion."""
    codec: str | None = Field(default=None, min_length=1, max_length=80)
    """Translation for a tiny model: ``maze`` or ``programs``; without one, English."""
    edit_format: EditFormat = EditFormat.REWRITE
    """Whole programs or diffs."""
    prompt_style: PromptStyle = PromptStyle.STANDARD
    """Standard prompts, or compact, prefilled and scaffolded ones for small models."""
    answers_per_rollout: int = Field(default=1, ge=1, le=64)
    """Programs in one completion."""
    prompt_tokens: int = Field(default=120_000, ge=2_000, le=10_000_000)
    """Longest prompt, in tokens. Each UTF-8 byte counts as a token, a bound for any tokenizer. The least useful parts
    are cut first. Prompts of a codec are not bounded."""
    sampling: Annotated[Sampling, Flag("--sampling")] = Sampling()
    """Sampling parameters."""
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    """Time limit of one request, in seconds."""
    price: Annotated[Price | None, Flag("--price")] = None
    """Price in US dollars per million tokens, if known."""
    options: Annotated[dict[str, JsonValue], Flag("--option")] = Field(default_factory=dict)
    """Options of the client, validated by its config model."""

    @model_validator(mode="after")
    def _codec_completes(self) -> Self:
        if self.codec is not None and self.prompt_format is not PromptFormat.COMPLETION:
            raise ValueError("a policy with a codec needs prompt_format 'completion'")
        if self.prompt_style.is_compact and self.edit_format is EditFormat.DIFF:
            raise ValueError(
                f"prompt_style '{self.prompt_style}' asks for whole programs: expected edit_format 'rewrite'"
            )
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the registration: registrations with equal digests are the same version."""
        return digest_of(self.hashed())

    def hashed(self) -> dict[str, Any]:
        """Return what the digest covers: the presence of a key, not the key, whose change makes no new version."""
        return (self if self.api_key_id is None else self.model_copy(update={"api_key_id": "stored"})).stored_json()

    def command_with(self, flag: str, *changes: str) -> str:
        """Return the command that registers it again with changes."""
        words = ["speciate", "policies", "add", self.slug, "--kind", self.kind]
        changed = {(flag, change.partition("=")[0]) for change in changes}
        for name, field in type(self).model_fields.items():
            value, default = getattr(self, name), field.get_default(call_default_factory=True)
            option = option_names(name, field)[0]
            if name in ARGUMENTS or value == default or (isinstance(value, Value) and flag_of(field) is None):
                continue  # without a flag, the service or a checkpoint's manifest sets it
            parts = value.model_dump(exclude_defaults=default is not None) if isinstance(value, Value) else value
            if isinstance(parts, dict):
                kept = {key: part for key, part in parts.items() if (option, key) not in changed}
                words += [word for key, part in kept.items() for word in (option, f"{key}={json.dumps(part)}")]
            elif option != flag:
                words += [option, str(value)]
        words += [word for change in changes for word in (flag, change)]
        words += ["--checkpoint", "DIR"] if self.probe or self.training else []
        return shlex.join([*words, *(["--api-key-file", "FILE"] if self.api_key_id else [])])

    @property
    def is_external(self) -> bool:
        """True if the service samples nothing: an agent or a person outside proposes in this policy's name."""
        return self.kind == EXTERNAL

    @property
    def asks_model(self) -> bool:
        """True if a model or an agent writes its answers."""
        return self.kind not in _EDITORS and not self.is_external

    @property
    def bills_afterwards(self) -> bool:
        """True if nobody knows beforehand what an answer costs at most: it is an agent."""
        return self.kind == "command"

    @property
    def reads_prompts(self) -> bool:
        """True if words in a prompt can change its answers."""
        return self.codec is None and self.kind not in _EDITORS

    @property
    def can_advise(self) -> bool:
        """True if it can write advice: it chats, and answers any prompt in free text."""
        return self.reads_prompts and self.asks_model and self.prompt_format is PromptFormat.CHAT

    def answers_for(self, role: PolicyRole) -> int:
        """Return the answers per completion: a policy with a codec changes one candidate at a time."""
        return 1 if self.codec is not None and role is PolicyRole.MUTATE else self.answers_per_rollout

    def tokens_for(self, role: PolicyRole) -> int:
        """Return the longest completion, in tokens: ``max_tokens`` is shared by several answers."""
        return self.sampling.max_tokens * self.answers_for(role) // self.answers_per_rollout


EXTERNAL_POLICY: Final = Policy(
    slug=EXTERNAL, kind=EXTERNAL, description="Agents and people that send programs to runs", training_method="none"
)
"""The policy of proposers without one of their own."""

BUILT_IN: Final = {policy.slug: policy for policy in (EXTERNAL_POLICY, Policy(slug=MUTATOR, kind="program_mutator"))}
"""Policies that every project has, by name."""
