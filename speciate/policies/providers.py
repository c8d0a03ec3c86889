"""Presets of providers and servers: address, variable of the key, and the request fields that they do not accept.

The fields are those that each provider documents (November 2026). A preset fills in what a registration leaves out; the
policy stores the result, so a later change of a preset changes no registered policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Provider:
    """A preset."""

    base_url: str
    """Address of its OpenAI-compatible endpoint."""
    key_variable: str | None = None
    """Variable in which its users keep their key; None if it takes no key."""
    hosted: bool = False
    """True if it is a service on the internet, which needs a key."""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Request fields to rename or omit, as in the option ``fields``."""
    unless_given: tuple[str, ...] = ()
    """Sampling parameters to omit unless the user sets them: models that reason refuse them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    summary: str = ""
    """Quirks, for the list of providers."""

    def policy_fields(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        omitted = dict.fromkeys(name for name in self.unless_given if name not in sampling)
        fields = {**self.fields, **omitted}
        options = {**self.options, **({"fields": fields} if fields else {})}
        policy: dict[str, Any] = {"kind": "openai_compatible", "base_url": self.base_url}
        if options:
            policy["options"] = options
        if self.timeout_s is not None:
            policy["timeout_s"] = self.timeout_s
        return policy


_ONE: Final[Mapping[str, str | None]] = {"n": None}


def _laptop(port: int, fields: Mapping[str, str | None] | None = None, more: str = "") -> Provider:
    """Return the preset of a server on a laptop, which answers one or two requests at a time, a long one in minutes."""
    return Provider(
        f"http://127.0.0.1:{port}/v1",
        fields={**_ONE, **(fields or {})},
        options={"concurrency": 2},
        timeout_s=900.0,
        summary=f"one completion per request, two requests at a time, 15 minutes each{more}",
    )


PROVIDERS: Final[dict[str, Provider]] = {
    "openai": Provider(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        hosted=True,
        fields={"max_tokens": "max_completion_tokens"},
        unless_given=("temperature", "top_p"),
        summary="max_completion_tokens; temperature and top_p only if set",
    ),
    "anthropic": Provider(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        hosted=True,
        fields={**_ONE, "seed": None, "logprobs": None, "reasoning_effort": None},
        unless_given=("temperature", "top_p"),
        options={"check": False},
        summary="one completion per request; no seed, no log-probabilities, no list of models",
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        hosted=True,
        fields={**_ONE, "seed": None, "logprobs": None},
        summary="one completion per request; no seed, no log-probabilities",
    ),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        hosted=True,
        fields={**_ONE, "reasoning_effort": "reasoning.effort"},
        summary="one completion per request; reasoning.effort",
    ),
    "litellm": Provider(
        "http://127.0.0.1:4000/v1", "LITELLM_API_KEY", fields=_ONE, summary="one completion per request"
    ),
    "vllm": Provider("http://127.0.0.1:8000/v1", "VLLM_API_KEY", summary="all fields"),
    "ollama": _laptop(11434),
    "llamacpp": _laptop(8080),
    "lmstudio": _laptop(1234, {"logprobs": None}, "; no log-probabilities"),
}
"""The presets, by the name that ``--provider`` takes."""
