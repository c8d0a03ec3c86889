"""Stored values without new fields can be read by the previous version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError

from speciate.domain.budget import Budget
from speciate.domain.campaign import Campaign
from speciate.domain.entrant import Entrant
from speciate.domain.limits import Limits
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.domain.tournament import Extension, Tournament
from speciate.domain.values import Value

FIRST = Path(__file__).with_name("first_version_fields.json")
"""Fields of every stored value in the first version. Never add to it: list new fields in ``omitted_at_default``."""

ROOTS = (RunSpec, Problem, Policy, Tournament, Campaign, Extension)


def stored_kinds() -> dict[str, type[Value]]:
    """Return every stored value and the values within it, by name."""
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
def test_new_fields_are_omitted_at_their_default(name: str) -> None:
    kind = KINDS[name]
    fields = kind.model_fields
    # A kind that the first version did not have is only stored in a new field of another kind.
    first = set(json.loads(FIRST.read_text()).get(name, fields))
    assert first <= fields.keys(), "a field of the first version is missing: stored values could not be read"
    new = fields.keys() - first - kind.omitted_at_default
    assert not new, f"name {new} in omitted_at_default of {name}: older processes do not know them"
    assert all(not fields[field].is_required() for field in kind.omitted_at_default)


class Detail(Value):
    """A value within another."""

    omitted_at_default = frozenset({"shade"})

    size: int = 1
    shade: str = "plain"


class Thing(Value):
    """A value with new fields, containing values with new fields."""

    omitted_at_default = frozenset({"extra", "listed"})

    name: str
    detail: Detail = Detail()
    details: tuple[Detail, ...] = ()
    by_name: dict[str, Detail] = Field(default_factory=dict)
    extra: int | None = None
    listed: list[int] = Field(default_factory=list)


def test_new_fields_are_stored_only_if_used() -> None:
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
    """An entrant without ensembles."""

    name: str
    policy: str
    mutator: str | None
    strategy: str
    strategy_options: dict[str, Any]
    batch: int
    samples_per_prompt: int
    against: str | None


def test_an_older_process_reads_values_without_new_fields() -> None:
    OlderEntrant.model_validate(Entrant(name="a", policy="base").stored_json())
    with pytest.raises(ValidationError, match="training_seed"):
        OlderEntrant.model_validate(Entrant(name="a", policy="base", method="vpo", training_seed=0).stored_json())
    with pytest.raises(ValidationError, match="policies"):
        OlderEntrant.model_validate(
            Entrant.model_validate({"name": "a", "policy": {"base": 1.0, "vpo": 2.0}}).stored_json()
        )


class LaterLimits(Limits):
    """Limits with a new field."""

    omitted_at_default = Limits.omitted_at_default | {"shade"}

    shade: str = "plain"


class LaterProblem(Problem):
    """A problem whose limits have a new field."""

    limits: LaterLimits = LaterLimits()


def test_a_new_field_does_not_change_the_evaluator_digest() -> None:
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
    """A campaign with a new field."""

    omitted_at_default = Campaign.omitted_at_default | {"shade"}

    shade: str = "plain"


def test_a_new_field_does_not_change_the_digest_of_a_campaign() -> None:
    values = {"slug": "a", "problems": ["b"], "policy": "base", "evaluations": 100}
    before = Campaign.model_validate(values).digest
    assert LaterCampaign.model_validate(values).digest == before
    assert LaterCampaign.model_validate(values | {"shade": "red"}).digest != before


def test_a_run_spec_omits_only_new_fields_at_their_default() -> None:
    spec = RunSpec(budget=Budget(evaluations=1))
    assert spec.stored_json().keys() == RunSpec.model_fields.keys() - RunSpec.omitted_at_default
    assert "policy_discount" in spec.model_copy(update={"policy_discount": 0.9}).stored_json()


def test_a_changed_copy_has_a_digest_of_its_own() -> None:
    policy = Policy(slug="a", kind="scripted")
    before = policy.digest
    changed = policy.model_copy(update={"slug": "b"})
    assert changed.digest == Policy(slug="b", kind="scripted").digest != before
    assert policy.model_copy().digest == policy.digest == before
