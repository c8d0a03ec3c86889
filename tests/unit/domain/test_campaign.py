"""Tests of campaign declarations."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from speciate.domain.campaign import Campaign


def _declared(**changes: object) -> Campaign:
    return Campaign.model_validate(
        {"slug": "c", "problems": ["p", "q"], "policy": "one", "evaluations": 100, "slice": 30, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problems": ["p", "p"]}, "problem 'p' is named twice"),
        ({"problems": []}, "at least 1 item"),
        ({"mode": "greedy"}, "'adaptive' or 'fixed'"),
        ({"evaluations": 0}, "greater than or equal to 1"),
        ({"evaluations": True}, "valid integer"),
        ({"slice": 0}, "greater than or equal to 1"),
        ({"policy": {}}, "at least 1 item"),
        ({"policy": {"one": 0}}, "greater than 0"),
        ({"lanes": 4}, "Extra inputs"),
    ],
)
def test_invalid_campaign_is_rejected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _declared(**changes)


def test_min_evaluations_slices_and_grants() -> None:
    assert (_declared().min_evaluations, _declared(mode="fixed").min_evaluations) == (60, 2)
    assert (_declared().slices, _declared(mode="fixed").slices) == (4, 2)
    assert (_declared().grant, _declared(mode="fixed").grant) == (30, 50)


def test_run_spec_stops_on_unlock_and_uses_the_seed() -> None:
    spec = _declared(seed=7, strategy="best_of_n").spec()
    assert (spec.seed, spec.lanes, spec.stop_on_unlock, spec.budget.evaluations) == (7, 1, True, 100)


def test_single_policy_equals_an_ensemble_of_one() -> None:
    assert _declared().policy == {"one": 1.0}
    assert _declared().digest == _declared(policy={"one": 1}).digest
