"""Reads a policy's options with its client's own config model, and says clearly what does not fit."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from speciate.domain.errors import Flaw, InvalidInputError
from speciate.domain.policy import Policy
from speciate.domain.values import Value

Options = TypeVar("Options", bound=Value)


def read_options(policy: Policy, model: type[Options]) -> Options:
    """Return the options of a policy.

    Raises:
        InvalidInputError: One is unknown or out of range; the message names it and the valid ones with their defaults.
    """
    try:
        return model.model_validate(policy.options)
    except ValidationError as error:
        flaws = tuple(Flaw(e["msg"], where=".".join(("options", *map(str, e["loc"])))) for e in error.errors())
    raise InvalidInputError(
        f"policy {policy.slug!r} of kind {policy.kind!r}: {'; '.join(map(str, flaws))}.",
        flaws=flaws,
        remedy=f"Options of this kind: {valid_options(model)}.",
    )


def valid_options(model: type[Value]) -> str:
    """Return the names of the options with their defaults."""
    shown = (
        name if field.is_required() else f"{name} = {field.get_default(call_default_factory=True)!r}"
        for name, field in model.model_fields.items()
    )
    return ", ".join(shown) or "none"
