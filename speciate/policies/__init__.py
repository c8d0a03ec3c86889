"""Build the client of a policy. A kind of policy is one module and one line in ``KINDS``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.suggestions import did_you_mean

if TYPE_CHECKING:
    from speciate.domain.policy import Policy
    from speciate.policies.kind import ClientContext, PolicyKind
    from speciate.ports.policy import PolicyClient

# Modules are imported when first used: the command line shows the names, and a worker that mutates programs needs no
# HTTP client.
KINDS: Final[dict[str, str]] = {
    "command": "speciate.policies.command",
    "embedded": "speciate.policies.embedded",
    "external": "speciate.policies.external",
    "openai_compatible": "speciate.policies.openai_compatible",
    "polish": "speciate.policies.polish",
    "program_mutator": "speciate.policies.program_mutator",
    "scripted": "speciate.policies.scripted",
}
"""The module of each policy kind, which defines ``KIND``."""

DEFAULT_KIND: Final = "openai_compatible"


def policy_kind(name: str) -> PolicyKind:
    kind: PolicyKind = import_module(KINDS[name]).KIND
    return kind


def takes_key(policy: Policy) -> bool:
    return policy.kind in KINDS and policy_kind(policy.kind).takes_key


def asks_singly(policy: Policy) -> bool:
    """Return True if each completion takes a request of its own."""
    from speciate.policies.kind import client_options
    from speciate.policies.openai_options import OpenAICompatibleOptions

    return policy.kind == DEFAULT_KIND and client_options(policy, OpenAICompatibleOptions).single


def build_client(policy: Policy, context: ClientContext | None = None) -> PolicyClient:
    """Return the client of a policy without contacting anything; ``InvalidInputError`` lists what is valid."""
    from speciate.policies.kind import STANDALONE
    from speciate.prompts.codecs import codec_of

    if policy.kind not in KINDS:
        raise InvalidInputError(
            f"policy {policy.slug!r} has the unknown kind {policy.kind!r}.",
            remedy=did_you_mean(policy.kind, KINDS) or f"Kinds: {', '.join(KINDS)}.",
        )
    if policy.codec is not None:
        codec_of(policy.codec)
    return policy_kind(policy.kind).client(policy, context or STANDALONE)
