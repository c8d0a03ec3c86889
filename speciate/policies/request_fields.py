"""Adapt request fields to an endpoint: rename them, omit them, or fix them.

Servers that speak the OpenAI protocol differ in the fields that they accept. A policy declares the differences in its
options, so that its registration says exactly what was sent.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, JsonValue, StringConstraints, model_validator

from speciate.domain.policy import Price
from speciate.domain.rollout import REFUSED
from speciate.domain.values import Value, merged
from speciate.ports.policy import SampleRequest, SampleResult

RequestField = Literal[
    "n", "seed", "temperature", "top_p", "max_tokens", "logprobs", "stream", "stream_options", "reasoning_effort",
    "return_token_ids", "stop", "add_generation_prompt", "continue_final_message",
]  # fmt: skip
"""Fields of a request that a policy may rename or omit."""

FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$", max_length=100)]
"""Name of a field, or ``object.field`` for a field of an object."""

_OURS: Final = frozenset({"model", "messages", "prompt", "n", "stream", "max_tokens", "max_completion_tokens"})
"""Fields that decide what is asked and what it may cost."""


class RequestFields(Value):
    fields: dict[RequestField, FieldName | None] = Field(default_factory=dict)
    """New name of a request field, or null to omit it: ``{"max_tokens": "max_completion_tokens", "seed": null}``.
    Without ``n``, each completion takes a request of its own."""
    reasoning_effort: str | None = Field(default=None, pattern="^[a-z]{1,20}$")
    """Effort of a model that reasons before it answers, such as ``low``; None for its default."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of every request, such as vLLM's ``top_k``; they win over sampling parameters, but not over the
    limit of tokens."""

    @model_validator(mode="after")
    def _keeps_control(self) -> Self:
        if fixed := _OURS & set(self.extra_body):
            raise ValueError(
                f"extra_body sets {', '.join(sorted(fixed))}: expected other fields; set the policy's model,"
                " sampling max_tokens, or the option fields instead"
            )
        if self.reasoning_effort is not None and self.fields.get("reasoning_effort", "") is None:
            raise ValueError("reasoning_effort is set, and fields omits it: expected one of the two")
        if "max_tokens" in self.fields and self.fields["max_tokens"] is None:
            raise ValueError("fields omits max_tokens: expected a new name, since token budgets need the limit")
        sent = [name for field in get_args(RequestField) if (name := self.fields.get(field, field)) is not None]
        if clash := [name for name in sent if sent.count(name) > 1 or name.partition(".")[0] in {*sent} - {name}]:
            raise ValueError(f"fields sends two values as {clash[0]}: expected a name of its own for each, or null")
        if taken := {name for name in self.fields.values() if name in ("model", "messages", "prompt")}:
            raise ValueError(f"fields renames a field to {', '.join(sorted(taken))}: expected another name")
        return self

    @property
    def single(self) -> bool:
        return "n" in self.fields and self.fields["n"] is None

    def apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.reasoning_effort is not None:
            body = {**body, "reasoning_effort": self.reasoning_effort}
        sent: dict[str, Any] = {}
        ours: dict[str, Any] = {}
        for field, value in body.items():
            name = self.fields.get(field, field)  # type: ignore[call-overload]
            if name is None:
                continue
            outer, _, inner = name.partition(".")
            for fields in (sent, ours) if field in _OURS else (sent,):
                fields[outer] = {**fields.get(outer, {}), inner: value} if inner else value
        return merged(merged(sent, self.extra_body), ours)


def one_each(request: SampleRequest) -> list[SampleRequest]:
    if request.n == 1:
        return [request]
    return [replace(request, n=1, seed=seed_of(request.seed, index)) for index in range(request.n)]


def joined(results: Sequence[SampleResult], price: Price | None = None) -> SampleResult:
    """Return results of ``one_each`` as one; refusals are one answer, or none if another request was answered."""
    completions = [completion for result in results for completion in result.completions]
    answered = [completion for completion in completions if completion.finish_reason != REFUSED]
    billed = sum(completion.tokens for completion in completions if completion.finish_reason == REFUSED)
    first, *rest = answered or completions[:1]
    reported = any(result.cost is not None for result in results)
    return SampleResult(
        completions=(replace(first, tokens=billed + (first.tokens if answered else 0)), *rest),
        prompt_tokens=sum(result.prompt_tokens for result in results),
        latency_s=max(result.latency_s for result in results),
        estimated_tokens=sum(result.estimated_tokens for result in results),
        cost=sum(result.charge(price).cost for result in results) if reported else None,
    )


def seed_of(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:4]) >> 1
