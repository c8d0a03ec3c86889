"""Options for policies that runs train, and what they learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speciate.cli import output
from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import MIN_GROUP

if TYPE_CHECKING:
    from speciate.schema.runs import LearningRecord


def complete_learning(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a run or a campaign with as many answers per prompt as a group needs, if it learns."""
    if "learning" not in options:
        return options
    if "estimator" not in options["learning"]:
        raise InvalidInputError("--learn-option needs --learn.", remedy="Add --learn vector_max_at_k.")
    return {"samples_per_prompt": MIN_GROUP, **options}


def learning_fields(learning: LearningRecord | None, *, over: bool) -> list[tuple[str, str | None]]:
    """Return the fields of what a run or a campaign has learned; empty if it does not learn."""
    if learning is None:
        return []
    waits = "a step is in flight, or waits for a learn worker (`speciate up --learn`)"
    state = learning.ended or ("" if over else waits if learning.busy else "collects groups")
    steps = output.pluralize(learning.taken, "step")
    if learning.campaign is not None and learning.taken < learning.step:
        steps += f" of {learning.step:,} of campaign {learning.campaign}"
    return [
        ("learning", f"{steps}; {state}" if state else steps),
        ("learned", learning.version),
        ("groups", learning.groups),
        ("cost of learning", f"{learning.seconds:,.1f} s, {learning.tokens:,} tokens"),
    ]
