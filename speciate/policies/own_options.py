"""The options of a policy, read with its client's own config model."""

from __future__ import annotations

from typing import TypeVar

from speciate.domain.policy import Policy
from speciate.domain.validation import read_options
from speciate.domain.values import Value

Options = TypeVar("Options", bound=Value)


def own_options(policy: Policy, model: type[Options]) -> Options:
    """Return the options of a policy.

    Raises:
        InvalidInputError: One is unknown or out of range; the message lists the valid ones.
    """
    return read_options(f"policy {policy.slug!r} of kind {policy.kind!r}", model, policy.options, where="options")
