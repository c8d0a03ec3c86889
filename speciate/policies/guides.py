"""Constraints on what a model may write: sent as vLLM's ``structured_outputs``, refused where a server has none."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.values import Value
from speciate.ports.policy import SampleRequest
from speciate.prompts.diff import DIFF_GRAMMAR


class CustomGuide(Value):
    """A constraint of the user's own, in the language of the server's grammar engine.

    Attributes:
        regex: What the whole answer must match.
        grammar: A grammar in EBNF whose start is ``root``.
    """

    regex: str | None = Field(default=None, min_length=1, max_length=100_000)
    grammar: str | None = Field(default=None, min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.regex is None) == (self.grammar is None):
            raise ValueError("expected either regex or grammar")
        return self


Guide = Literal["diff"] | CustomGuide

MALFORMED: Final = {"structured_outputs": {"regex": "("}}
"""A constraint that no server can keep: one that accepts it ignores constraints."""


def check_guide(policy: Policy, guide: Guide | None) -> None:
    """Check that a guide fits the policy.

    Raises:
        InvalidInputError: It asks for edits, and the policy is asked for whole programs.
    """
    if guide == "diff" and (policy.edit_format is not EditFormat.DIFF or policy.codec is not None):
        raise InvalidInputError(
            f"policy {policy.slug!r} has the guide 'diff' and is not asked for edits.",
            remedy="Set edit_format to 'diff', without a codec.",
        )


def constraint(guide: Guide | None) -> dict[str, Any]:
    """Return the fields that a request has on account of a guide."""
    if guide is None:
        return {}
    rule = {"grammar": DIFF_GRAMMAR} if guide == "diff" else guide.model_dump(exclude_none=True)
    return {"structured_outputs": rule}


def constraint_of(guide: Guide | None, request: SampleRequest) -> dict[str, Any]:
    """Return the fields of one request: advice is free text, and there is nothing to edit without a program."""
    if request.role is PolicyRole.ADVISE:
        return {}
    if guide == "diff" and not request.parents and not request.seed_program:
        return {}
    return constraint(guide)
