"""Presets of providers and servers: address, variable of the key, and the request fields that they do not accept.

The fields are those that each provider documents (November 2026). A preset fills in what a registration leaves out; the
policy stores the result, so a later change of a preset changes no registered policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.policies.prices import FoundPrice, price_of
from speciate.settings import FILE_SUFFIX, secret_of


@dataclass(frozen=True)
class Provider:
    base_url: str
    key_variable: str = "POLICY_KEY"
    """Variable in which its users keep their key."""
    hosted: bool = False
    """True if it is a service on the internet, which needs a key."""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Request fields to rename or omit, as in the option ``fields``."""
    unless_given: tuple[str, ...] = ()
    """Sampling parameters to omit unless the user sets them: models that reason refuse them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    max_tokens: int | None = None
    """Longest completion unless the user sets it, reasoning included; None for the default of policies."""
    summary: str = ""
    start: str = ""
    load: str = ""
    """Command that makes ``{model}`` available there."""

    def policy_fields(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        fields = {**self.fields, **dict.fromkeys(name for name in self.unless_given if name not in sampling)}
        policy: dict[str, Any] = {"kind": "openai_compatible", "base_url": self.base_url, "timeout_s": self.timeout_s}
        policy["options"] = {**self.options, **({"fields": fields} if fields else {})}
        if self.max_tokens is not None and "max_tokens" not in sampling:
            policy["sampling"] = {"max_tokens": self.max_tokens}
        return {name: value for name, value in policy.items() if value}


_ONE: Final[Mapping[str, str | None]] = {"n": None}
_WITH_REASONING: Final = 16_384
"""Longest completion: a model that reasons takes minutes and thousands of tokens before its answer."""
_SERVED: Final[Mapping[str, Any]] = {"timeout_s": 900.0, "max_tokens": _WITH_REASONING}
"""For servers of one's own, which may be slow."""


def _hosted(base_url: str, key_variable: str, **more: Any) -> Provider:
    return Provider(base_url, key_variable, hosted=True, timeout_s=300.0, max_tokens=_WITH_REASONING, **more)


def _laptop(
    port: int, start: str, load: str, fields: Mapping[str, str | None] | None = None, more: str = ""
) -> Provider:
    """Return the preset of a server on a laptop, which answers one or two requests at a time, a long one in minutes."""
    return Provider(
        f"http://127.0.0.1:{port}/v1",
        fields={**_ONE, **(fields or {})},
        options={"concurrency": 2},
        timeout_s=900.0,
        max_tokens=8192,
        summary=f"one completion per request, two requests of a batch at a time, 15 minutes each{more}",
        start=start,
        load=load,
    )


PROVIDERS: Final[dict[str, Provider]] = {
    "openai": _hosted(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        fields={"max_tokens": "max_completion_tokens"},
        unless_given=("temperature", "top_p"),
        summary="max_completion_tokens; temperature and top_p only if set",
    ),
    "anthropic": _hosted(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        fields={**_ONE, "seed": None, "logprobs": None, "reasoning_effort": None},
        unless_given=("temperature", "top_p"),
        options={"check": False},
        summary="one completion per request; no seed, no log-probabilities, no list of models",
    ),
    "gemini": _hosted(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        fields={**_ONE, "seed": None, "logprobs": None},
        summary="one completion per request; no seed, no log-probabilities",
    ),
    "openrouter": _hosted(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        fields={**_ONE, "reasoning_effort": "reasoning.effort"},
        summary="one completion per request; reasoning.effort",
    ),
    "litellm": Provider(
        "http://127.0.0.1:4000/v1",
        "LITELLM_API_KEY",
        fields=_ONE,
        summary="one completion per request",
        start="litellm --config FILE",
        **_SERVED,
    ),
    "vllm": Provider(
        "http://127.0.0.1:8000/v1",
        "VLLM_API_KEY",
        summary="all fields",
        start="vllm serve MODEL",
        load="vllm serve {model}",
        **_SERVED,
    ),
    "ollama": _laptop(11434, "ollama serve", "ollama pull {model}"),
    "llamacpp": _laptop(8080, "llama-server -m FILE.gguf --port 8080", "llama-server -m FILE.gguf --alias {model}"),
    "lmstudio": _laptop(1234, "lms server start", "lms load {model}", {"logprobs": None}, "; no log-probabilities"),
}
"""The presets, by the name that ``--provider`` takes."""

ANY_SERVER: Final = Provider("", fields=_ONE, **_SERVED)
"""What fits any server that speaks the protocol."""


def provider_named(name: str) -> Provider:
    if name not in PROVIDERS:
        raise InvalidInputError(
            f"there is no provider {name!r}.",
            remedy=did_you_mean(name, PROVIDERS) or f"Providers: {', '.join(PROVIDERS)}.",
        )
    return PROVIDERS[name]


def provider_at(base_url: str) -> Provider | None:
    address = base_url.rstrip("/").replace("//localhost:", "//127.0.0.1:")
    return next((provider for provider in PROVIDERS.values() if provider.base_url == address), None)


def preset_fields(
    name: str, model: str | None, sampling: Mapping[str, Any]
) -> tuple[dict[str, Any], FoundPrice | None]:
    """Return the policy fields of a provider's preset, and the price of the model if a table lists it."""
    fields, listed = provider_named(name).policy_fields(sampling), None if model is None else price_of(name, model)
    return fields if listed is None else {**fields, "price": listed.price.model_dump()}, listed


def environment_key(provider: Provider, name: str, remedy: str = "") -> str | None:
    """Return the key in the provider's variable or ``…_FILE``; ``InvalidInputError`` if a hosted one has none."""
    key = (secret_of(variable := provider.key_variable) or "").strip()
    if not key and provider.hosted:
        raise InvalidInputError(
            f"{name} needs a key, and {variable} is not set.",
            remedy=f"Set {variable} to the key, or {variable}{FILE_SUFFIX} to a file that holds it{remedy}.",
        )
    return key or None
