"""Who can be asked for candidates: one file for each kind of policy, and one line in ``CLIENTS``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy
from speciate.policies.surroundings import ALONE, Surroundings
from speciate.ports.policy import PolicyClient
from speciate.prompts.codecs import codec_of


# Imported when first used: a worker that mutates programs needs no HTTP client.
def _openai_compatible(policy: Policy, surroundings: Surroundings) -> PolicyClient:
    from speciate.policies.openai_compatible import OpenAICompatible

    return OpenAICompatible(policy, surroundings)


def _embedded(policy: Policy, surroundings: Surroundings) -> PolicyClient:
    from speciate.policies.embedded import Embedded

    return Embedded(policy, surroundings)


def _program_mutator(policy: Policy, _: Surroundings) -> PolicyClient:
    from speciate.policies.program_mutator import ProgramMutator

    return ProgramMutator(policy)


def _scripted(policy: Policy, _: Surroundings) -> PolicyClient:
    from speciate.policies.scripted import Scripted

    return Scripted(policy)


CLIENTS: Final[dict[str, Callable[[Policy, Surroundings], PolicyClient]]] = {
    "embedded": _embedded,
    "openai_compatible": _openai_compatible,
    "program_mutator": _program_mutator,
    "scripted": _scripted,
}
"""How each kind of policy is asked, by the name that a registration gives."""


def build_client(policy: Policy, surroundings: Surroundings = ALONE) -> PolicyClient:
    """Return the client that asks a policy. Nothing is contacted yet.

    Args:
        policy: Who is asked.
        surroundings: What this installation allows and keeps: networks, keys.

    Raises:
        InvalidInputError: Kind or codec are unknown, or options or endpoint do not fit; the message lists what does.
    """
    build = CLIENTS.get(policy.kind)
    if build is None:
        raise InvalidInputError(
            f"policy {policy.slug!r} has the unknown kind {policy.kind!r}.", remedy=f"Kinds: {', '.join(CLIENTS)}."
        )
    if policy.codec is not None:
        codec_of(policy.codec)
    return build(policy, surroundings)


__all__ = ["CLIENTS", "Surroundings", "build_client"]
