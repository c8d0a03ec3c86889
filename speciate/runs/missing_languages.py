"""What a problem needs on a worker, and why a run without such a worker waits (ADR 47)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from speciate.domain.capabilities import IMAGE_CAPABILITIES, capabilities_for, missing_capabilities
from speciate.domain.known_languages import programs_of


def required_capabilities(definition: Mapping[str, Any]) -> frozenset[str]:
    """Programs and other capabilities that a worker needs, by ``language``, ``image`` and ``writable`` of a problem."""
    language = definition["language"]
    commands = programs_of(language.get("build", ()), language.get("run", ()))
    return capabilities_for(definition["image"], definition["writable"] or (), commands)


def waiting_reason(definition: Mapping[str, Any], machines: Sequence[Set[str]], tiers: Set[str]) -> str | None:
    """Why no worker can evaluate a problem; None if one can. Arguments as of the functions called."""
    required = required_capabilities(definition)
    lack = missing_capabilities(required, machines, tiers)
    if lack is None:
        return None
    missing, remedy = lack
    what = definition["language"]["name"] if IMAGE_CAPABILITIES.isdisjoint(required) else "its image"
    return (
        f"waits for a worker that runs {what}: no evaluate worker has {missing}. {remedy};"
        " `speciate doctor` lists what each worker has"
    )
