"""Options for policies that runs train, and what they learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import parse_key_values
from speciate.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from speciate.schema.runs import LearningRecord

_SAMPLES: Final = 8

Learn = Annotated[
    str | None,
    typer.Option(metavar="ESTIMATOR", help="Train the policy on its own completions with this estimator."),
]
LearnOptions = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Option of --learn, such as groups=8 or learning_rate=1e-4; repeatable."),
]


def parse_learning(estimator: str | None, options: list[str] | None) -> dict[str, Any] | None:
    if estimator is None and options:
        raise InvalidInputError("--learn-option needs --learn.", remedy="Add --learn vector_max_at_k.")
    return None if estimator is None else {**parse_key_values(options, "--learn-option"), "estimator": estimator}


def samples_to_learn(given: int | None, learn: str | None) -> int | None:
    """Return the answers sampled per prompt: by default as many as a group needs with --learn."""
    return _SAMPLES if given is None and learn is not None else given


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
