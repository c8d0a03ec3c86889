"""What is written to tables can be read by the version before, as long as nobody uses what came later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError

from speciate.domain.budget import Budget
from speciate.domain.campaign import Campaign
from speciate.domain.entrant import Entrant
from speciate.domain.policy import Policy
from speciate.domain.problem import Limits, Problem
from speciate.domain.run import RunSpec
from speciate.domain.tournament import Extension, Tournament
from speciate.domain.values import Value

FIRST = Path(__file__).with_name("stored_fields.json")
"""Fields of every stored value in the first version. Never add to it: list new fields in ``omitted_at_default``."""

ROOTS = (RunSpec, Problem, Policy, Tournament, Campaign, Extension)


def stored_kinds() -> dict[str, type[Value]]:
    """Return every value that is stored, or is within one that is, by name."""
    found: dict[str, type[Value]] = {}
    queue: list[Any] = list(ROOTS)
    while queue:
        kind = queue.pop()
        queue += getattr(kind, "__args__", ())
        if isinstance(kind, type) and issubclass(kind, Value) and kind.__name__ not in found:
            found[kind.__name__] = kind
            queue += [field.annotation for field in kind.model_fields.values()]
    return found


KINDS = stored_kinds()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_fields_that_came_later_are_named_and_have_defaults(name: str) -> None:
    kind, first = KINDS[name], set(json.loads(FIRST.read_text())[name])
    fields = kind.model_fields
    assert first <= fields.keys(), "a field of the first version is gone: what is stored could not be read"
    new = fields.keys() - first - kind.omitted_at_default
    assert not new, f"name {new} in omitted_at_default of {name}: older processes do not know them"
    assert all(not fields[field].is_required() for field in kind.omitted_at_default)


class Detail(Value):
    """A value within another."""

    omitted_at_default = frozenset({"shade"})

    size: int = 1
    shade: str = "plain"


class Thing(Value):
    """A value with fields that came later, and values with such fields."""

    omitted_at_default = frozenset({"extra", "listed"})

    name: str
    detail: Detail = Detail()
    details: tuple[Detail, ...] = ()
    by_name: dict[str, Detail] = Field(default_factory=dict)
    extra: int | None = None
    listed: list[int] = Field(default_factory=list)


def test_fields_that_came_later_are_stored_where_they_are_used_and_only_there() -> None:
    plain = Thing(name="a", details=(Detail(), Detail(shade="red")), by_name={"x": Detail(), "y": Detail(shade="red")})
    assert plain.stored_json() == {
        "name": "a",
        "detail": {"size": 1},
        "details": [{"size": 1}, {"size": 1, "shade": "red"}],
        "by_name": {"x": {"size": 1}, "y": {"size": 1, "shade": "red"}},
    }
    assert Thing.model_validate(plain.stored_json()) == plain
    used = Thing(name="a", extra=0, listed=[1])
    assert {"extra": 0, "listed": [1]}.items() <= used.stored_json().items()
    assert Thing.model_validate(used.stored_json()) == used


class OlderEntrant(Value):
    """An entrant as it was before there were ensembles."""

    name: str
    policy: str
    mutator: str | None
    strategy: str
    strategy_options: dict[str, Any]
    batch: int
    samples_per_prompt: int
    against: str | None


def test_an_older_process_reads_what_a_newer_one_writes_until_somebody_uses_what_is_new() -> None:
    OlderEntrant.model_validate(Entrant(name="a", policy="base").stored_json())
    with pytest.raises(ValidationError, match="policies"):
        OlderEntrant.model_validate(
            Entrant.model_validate({"name": "a", "policy": {"base": 1.0, "vpo": 2.0}}).stored_json()
        )


class LaterLimits(Limits):
    """Limits with a field more."""

    omitted_at_default = frozenset({"shade"})

    shade: str = "plain"


class LaterProblem(Problem):
    """A problem whose limits have a field more."""

    limits: LaterLimits = LaterLimits()


def test_what_was_measured_before_a_field_came_is_still_measured_by_the_same_evaluator() -> None:
    values = {
        "slug": "a",
        "title": "A",
        "kind": "cases",
        "objectives": [{"name": "score"}],
        "targets": [{"name": "all", "rule": "score >= 1", "unlock": True}],
        "cases": [{"input": [1], "expected": 1}],
    }
    before = Problem.model_validate(values).evaluator_digest
    assert LaterProblem.model_validate(values).evaluator_digest == before
    assert LaterProblem.model_validate(values | {"limits": {"shade": "red"}}).evaluator_digest != before
    assert LaterProblem.model_validate(values | {"many_files": True}).evaluator_digest != before


class LaterCampaign(Campaign):
    """A campaign with a field more."""

    omitted_at_default = frozenset({"shade"})

    shade: str = "plain"


def test_a_campaign_that_was_declared_before_a_field_came_is_still_the_same_one() -> None:
    values = {"slug": "a", "problems": ["b"], "policy": "base", "evaluations": 100}
    before = Campaign.model_validate(values).digest
    assert LaterCampaign.model_validate(values).digest == before
    assert LaterCampaign.model_validate(values | {"shade": "red"}).digest != before


def test_a_run_names_its_options_but_those_that_came_later() -> None:
    spec = RunSpec(budget=Budget(evaluations=1))
    assert spec.stored_json().keys() == RunSpec.model_fields.keys() - RunSpec.omitted_at_default
    assert "policy_discount" in spec.model_copy(update={"policy_discount": 0.9}).stored_json()
