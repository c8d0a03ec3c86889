"""Constrain a model's output by a grammar or regex, sent as vLLM's ``structured_outputs``."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.values import Value
from speciate.ports.policy import SampleRequest
from speciate.prompts.diff import DIFF_GRAMMAR


class CustomGuide(Value):
    """A user-defined constraint, in the language of the server's grammar engine."""

    regex: str | None = Field(default=None, min_length=1, max_length=100_000)
    """Regular expression that the whole answer must match."""
    grammar: str | None = Field(default=None, min_length=1, max_length=100_000)
    """A grammar in EBNF whose start is ``root``."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.regex is None) == (self.grammar is None):
            raise ValueError("expected either regex or grammar")
        return self


Guide = Literal["diff"] | CustomGuide

MALFORMED: Final = {"structured_outputs": {"regex": "("}}
"""An invalid constraint: a server that accepts it ignores constraints."""


def check_guide(policy: Policy, guide: Guide | None) -> None:
    """Refuse a guide that allows edits only for a policy that writes whole programs."""
    if guide == "diff" and (policy.edit_format is not EditFormat.DIFF or policy.codec is not None):
        raise InvalidInputError(
            f"policy {policy.slug!r} has the guide 'diff' but does not write edits.",
            remedy="Set edit_format to 'diff', without a codec.",
        )


def constraint(guide: Guide | None) -> dict[str, Any]:
    if guide is None:
        return {}
    rule = {"grammar": DIFF_GRAMMAR} if guide == "diff" else guide.model_dump(exclude_none=True)
    return {"structured_outputs": rule}


def constraint_of(guide: Guide | None, request: SampleRequest) -> dict[str, Any]:
    """Return the guide's fields for one request: none for advice, or for edits without a program."""
    if request.role is PolicyRole.ADVISE:
        return {}
    if guide == "diff" and not request.parents and not request.seed_program:
        return {}
    return constraint(guide)
