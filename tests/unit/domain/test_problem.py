"""Validation, digests and targets of problems."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from speciate.domain.budget import Budget
from speciate.domain.errors import RuleError
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.values import digest_of
from tests.support.runs import toy_problem


def _changed(**changes: Any) -> Problem:
    return Problem.model_validate({**toy_problem().model_dump(mode="json"), **changes})


def test_equal_definitions_have_one_digest() -> None:
    assert toy_problem().digest == _changed().digest
    assert toy_problem().digest != _changed(title="Another").digest
    assert toy_problem().evaluator_digest == _changed(title="Another").evaluator_digest
    assert toy_problem().evaluator_digest != _changed(evaluator="def evaluate(c, x): ...").evaluator_digest


def test_unset_new_fields_do_not_change_digests() -> None:
    definition = toy_problem().model_dump(mode="json")
    set_fields = {key: value for key, value in definition.items() if key not in Problem.omitted_at_default}
    limits = {key: value for key, value in definition["limits"].items() if key not in Limits.omitted_at_default}
    omitted = Objective.omitted_at_default
    objectives = [{key: each[key] for key in each.keys() - omitted} for each in definition["objectives"]]
    assert toy_problem().digest == digest_of({**set_fields, "limits": limits, "objectives": objectives})
    changed = _changed(prompts={"change_requests": "Make it shorter."})
    assert changed.digest != toy_problem().digest
    assert changed.evaluator_digest == toy_problem().evaluator_digest
    policy = Policy(slug="p", kind="scripted")
    before = {
        key: value for key, value in policy.model_dump(mode="json").items() if key not in Policy.omitted_at_default
    }
    assert policy.digest == digest_of(before)
    assert Policy(slug="p", kind="scripted", prompt_tokens=4000).digest != policy.digest


@pytest.mark.parametrize(
    ("given", "cpu_s"),
    [
        ({}, 2.0),
        ({"wall_s": 0.5}, 2.0),
        ({"wall_s": 60}, 60.0),
        ({"wall_s": 60, "cores": 4}, 240.0),
        ({"cores": 4}, 8.0),
        ({"wall_s": 60, "cores": 4, "cpu_s": 3}, 3.0),
    ],
)
def test_processor_time_follows_cores(given: dict[str, Any], cpu_s: float) -> None:
    limits = Limits.model_validate(given)
    assert limits.cpu_s == cpu_s
    assert Limits.model_validate(limits.stored_json()) == limits


def test_unset_limits_do_not_change_digests() -> None:
    assert not {"cores", "threads"} & _changed().stored_json()["limits"].keys()
    assert _changed(limits={"cores": 2}).evaluator_digest != _changed(limits={}).evaluator_digest


def test_targets_are_a_bit_mask() -> None:
    assert [toy_problem().targets_met(r) for r in ((1, 9), (5, 9), (8, 2))] == [0b00, 0b01, 0b11]


def test_a_scalar_needs_declared_weights() -> None:
    assert toy_problem().scalarize((10.0, 0.0)) == pytest.approx(1.0)
    assert _changed(weights=None).scalarize((10.0, 0.0)) is None


_TARGET = {"name": "t", "rule": "x > 1", "unlock": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"targets": [{**_TARGET, "unlock": False}]}, "0 targets are marked"),
        ({"targets": [_TARGET, {**_TARGET, "name": "u"}]}, "2 targets are marked"),
        ({"targets": [_TARGET, {**_TARGET, "unlock": False}]}, "target 't' is declared 2 times"),
        ({"objectives": [{"name": "x"}, {"name": "x"}]}, "objective 'x' is declared 2 times"),
        ({"objectives": [{"name": "and"}], "targets": [_TARGET]}, "word of the rule language"),
        (
            {"objectives": [{"name": "x", "role": "record"}], "weights": None, "targets": [_TARGET]},
            "nothing to improve",
        ),
        ({"objectives": [{"name": "x", "range": [1, 1]}], "targets": [_TARGET]}, "expected low < high"),
        ({"objectives": [{"name": "x", "range": [-1e308, 1e308]}], "targets": [_TARGET]}, "at most 1.7e308 apart"),
        ({"weights": {"x": -1}}, "weights must be"),
        ({"weights": {"z": 1}}, "weights name 'z'"),
        ({"evaluator": " "}, "needs an evaluator script"),
        ({"kind": "cases"}, "remove the evaluator"),
        ({"kind": "cases", "evaluator": ""}, "needs at least one case"),
        ({"slug": "Not A Slug"}, "slug"),
        ({"surprise": 1}, "surprise"),
        ({"confirmations": -1}, "confirmations"),
        ({"limits": {"wall_s": float("nan")}}, "wall_s"),
        ({"preload": ["numpy", "test.__main__"]}, "preload names 'test.__main__'"),
        ({"preload": ["idlelib"]}, "preload names 'idlelib'"),
    ],
)
def test_field_errors_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        _changed(**changes)


def test_a_rule_over_an_unknown_objective_is_refused() -> None:
    with pytest.raises(RuleError, match="unknown objective 'z'"):
        _changed(targets=[{**_TARGET, "rule": "z > 1"}])


@pytest.mark.parametrize("budget", [{}, {"evaluations": 0}, {"seconds": 0}, {"tokens": -1}, {"seconds": float("inf")}])
def test_a_budget_must_end_the_run(budget: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(budget)
