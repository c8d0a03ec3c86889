"""Show presets of providers, and take a policy's price and key from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speciate.cli import output
from speciate.policies.providers import PROVIDERS, environment_key, preset_fields, provider_named


def noted_preset(name: str | None, model: str | None, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy fields of a provider's preset; note the price of the model if a table lists it."""
    if name is None:
        return {}
    fields, listed = preset_fields(name, model, sampling)
    if listed is not None:
        output.print_note(
            f"Price of {model}: ${listed.price.input:g} for prompts and ${listed.price.output:g} for completions per"
            f" million tokens ({listed.origin}); --price sets another."
        )
    return fields


def contact(answer: Mapping[str, Any]) -> str:
    checked = not str(answer.get("message")).endswith("is not checked")
    return "responds" if checked else "was not contacted: its option check is false"


def key_from_environment(name: str | None, base_url: str | None) -> str | None:
    """Return the key that the user keeps in the provider's variable.

    A key goes only to its provider: with another address it has to be given explicitly.
    """
    provider = None if name is None else provider_named(name)
    if provider is None or name is None or (provider.hosted and base_url is not None):
        return None
    if key := environment_key(provider, name, ", or pass --api-key-file FILE"):
        output.print_note(f"The key in {provider.key_variable} is stored encrypted in the service.")
    return key


def print_providers(*, as_json: bool) -> None:
    rows = [{"name": name, **vars(provider)} for name, provider in PROVIDERS.items()]
    output.print_records(
        rows,
        ("provider", "endpoint", "key", "quirks"),
        lambda row: (row["name"], row["base_url"], row["key_variable"], row["summary"]),
        as_json=as_json,
    )
