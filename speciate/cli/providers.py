"""Fill in a policy's registration from the preset of its provider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from speciate.cli import output
from speciate.domain.errors import InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.policies.prices import price_of
from speciate.policies.providers import PROVIDERS, Provider


def provider_named(name: str) -> Provider:
    if name not in PROVIDERS:
        raise InvalidInputError(
            f"there is no provider {name!r}.",
            remedy=did_you_mean(name, PROVIDERS) or f"Providers: {', '.join(PROVIDERS)}.",
        )
    return PROVIDERS[name]


def preset_fields(name: str | None, model: str | None, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy fields of a provider's preset, with the price of the model if a table lists it."""
    if name is None:
        return {}
    fields = provider_named(name).policy_fields(sampling)
    listed = None if model is None else price_of(name, model)
    if listed is not None:
        output.print_note(
            f"Price of {model}: ${listed.price.input:g} for prompts and ${listed.price.output:g} for completions per"
            f" million tokens ({listed.origin}); --price sets another."
        )
        fields["price"] = listed.price.model_dump()
    return fields


def contact(answer: Mapping[str, Any]) -> str:
    checked = not str(answer.get("message")).endswith("is not checked")
    return "responds" if checked else "was not contacted: its option check is false"


def key_from_environment(name: str | None, base_url: str | None) -> str | None:
    """Return the key that the user keeps in the provider's variable.

    A key goes only to its provider: with another address it has to be given explicitly.
    """
    provider = None if name is None else provider_named(name)
    if provider is None or provider.key_variable is None or (provider.hosted and base_url is not None):
        return None
    key = os.environ.get(provider.key_variable, "").strip()
    if key:
        output.print_note(f"The key in {provider.key_variable} is stored encrypted in the service.")
    elif provider.hosted:
        raise InvalidInputError(
            f"{name} needs a key, and {provider.key_variable} is not set.",
            remedy=f"Set {provider.key_variable}, or pass --api-key-file FILE.",
        )
    return key or None


def print_providers(*, as_json: bool) -> None:
    rows = [{"name": name, **vars(provider)} for name, provider in PROVIDERS.items()]
    output.print_records(
        rows,
        ("provider", "endpoint", "key", "quirks"),
        lambda row: (row["name"], row["base_url"], row["key_variable"], row["summary"]),
        empty="",
        as_json=as_json,
    )
