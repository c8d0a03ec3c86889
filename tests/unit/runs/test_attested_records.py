"""Records that an external evaluator could not measure."""

from __future__ import annotations

import pytest

from speciate.client.evaluation_worker import _finite
from speciate.domain.problem import Problem
from speciate.domain.reward import InvalidRewardsError
from speciate.runs.external_evaluation import ExternalResult, attest
from tests.support.runs import toy_problem


def test_a_record_without_a_number_is_booked_as_not_measured() -> None:
    definition = toy_problem().model_dump(mode="json")
    objectives = [*definition["objectives"], {"name": "ratio", "role": "record", "range": [2, 3]}]
    changes = {"evaluator": "", "evaluation": "external", "objectives": objectives}
    problem = Problem.model_validate(definition | changes)
    rewards = {"x": 1.0, "y": 2, "ratio": _finite(float("nan"))}
    found = attest(problem, None, ExternalResult(rewards), "lab")
    assert (found.rewards, found.artifacts) == ((1.0, 2.0, 2.0), {"not measured": "ratio"})
    with pytest.raises(InvalidRewardsError, match=r"'x' is null: expected a finite number"):
        attest(problem, None, ExternalResult({**rewards, "x": _finite(float("inf"))}), "lab")
