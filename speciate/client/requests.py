"""What a user may hand to ``runs.create``, checked before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from speciate.domain.budget import Budget
from speciate.domain.errors import Flaw, InvalidInputError
from speciate.domain.run import RunSpec
from speciate.domain.wording import wording

BudgetLike = int | Budget | Mapping[str, float | None]
"""A budget, its fields by name, or a number of evaluations."""


PoliciesLike = str | UUID | Mapping[str, float]
"""A policy by id or name, or several of them with their weights."""


def run_spec(budget: BudgetLike, **values: Any) -> RunSpec:
    """Return what defines a run's course.

    Args:
        budget: What it may spend.
        values: Further fields of ``RunSpec``; None means its default.

    Raises:
        InvalidInputError: A value is not allowed; the flaws name them.
    """
    match budget:
        case Budget():
            limits = budget.model_dump()
        case Mapping():
            limits = dict(budget)
        case _:
            limits = {"evaluations": budget}
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return RunSpec.model_validate({"budget": limits, **given})
    except ValidationError as error:
        details = error.errors(include_url=False)
        flaws = tuple(
            Flaw(f"{wording(d)}, not {d['input']!r:.60}", where=".".join(str(part) for part in d["loc"]))
            for d in details
        )
        raise InvalidInputError(f"The run is not valid: {flaws[0]}", flaws=flaws) from None
