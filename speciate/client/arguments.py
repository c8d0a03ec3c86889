"""Validate the arguments of client methods before sending them."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pydantic import ValidationError

from speciate.domain.access import Quota
from speciate.domain.budget import Budget
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.labels import Labels, Relabelling
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedRequest, SeedSource
from speciate.domain.validation import own_mistakes, validation_message
from speciate.domain.values import Value

V = TypeVar("V", bound=Value)

BudgetLike = int | Budget | Mapping[str, float | None]
"""A budget, its fields by name, or a number of evaluations."""

PoliciesLike = str | UUID | Mapping[str, float]
"""A policy by id or name, or an ensemble of names with weights."""

SeedsLike = Iterable[str] | Mapping[str, str]
"""Seed programs: texts, or texts by name."""

SeedSourcesLike = str | UUID | Iterable[str | UUID | SeedSource]
"""Runs to take seed programs from; see ``SeedSource.parse``."""


def run_spec(budget: BudgetLike, **values: Any) -> RunSpec:
    """Return the spec of a run, of further fields of ``RunSpec``; None means the default.

    The ``InvalidInputError`` lists each invalid field.
    """
    match budget:
        case Budget():
            limits = budget.model_dump()
        case Mapping():
            limits = dict(budget)
        case _:
            limits = {"evaluations": budget}
    return _valid(RunSpec, {"budget": limits, **{name: value for name, value in values.items() if value is not None}})


def run_labels(name: str, tags: Iterable[str], note: str) -> Labels:
    return _valid(Labels, {"name": name, "tags": as_tuple(tags), "note": note})


def seed_request(seeds: SeedsLike, seed_from: SeedSourcesLike) -> SeedRequest:
    if isinstance(seeds, str):
        seeds = (seeds,)
    named = seeds.items() if isinstance(seeds, Mapping) else (("", program) for program in seeds)
    sources = (seed_from,) if isinstance(seed_from, str | UUID) else seed_from
    return _valid(
        SeedRequest,
        {
            "seeds": tuple({"program": program, "name": name} for name, program in named),
            "seed_from": tuple(s if isinstance(s, SeedSource) else SeedSource.parse(str(s)) for s in sources),
        },
    )


def relabelling(
    name: str | None, tags: Iterable[str] | None, add_tags: Iterable[str], remove_tags: Iterable[str], note: str | None
) -> Relabelling:
    lists = {"add_tags": as_tuple(add_tags), "remove_tags": as_tuple(remove_tags)}
    return _valid(Relabelling, {"name": name, "tags": None if tags is None else as_tuple(tags), "note": note, **lists})


def quota(**limits: int | None) -> Quota:
    return _valid(Quota, limits, "quota")


def as_tuple(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags as a tuple. A single string is one tag."""
    return (tags,) if isinstance(tags, str) else tuple(tags)


def _valid(kind: type[V], values: dict[str, Any], what: str = "run") -> V:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        field_errors = tuple(
            FieldError(
                f"{validation_message(d)}, not {d['input']!r:.60}", where=".".join(str(part) for part in d["loc"])
            )
            for d in own_mistakes(error.errors())
        )
        raise InvalidInputError(f"The {what} is not valid: {field_errors[0]}", field_errors=field_errors) from None
