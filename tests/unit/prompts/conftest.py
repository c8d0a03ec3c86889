"""Fixtures of the prompt tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem


@pytest.fixture
def problem() -> Callable[..., Problem]:
    def make(**changes: Any) -> Problem:
        return Problem.model_validate(
            {
                "slug": "packing",
                "title": "Circle packing",
                "description": "Pack 26 circles.",
                "kind": "evaluator",
                "objectives": [
                    {"name": "sum_of_radii", "range": [0, 2.7], "description": "Total radius."},
                    {"name": "overlap", "direction": "minimize", "role": "constraint", "limit": 0},
                    {"name": "calls", "role": "record"},
                ],
                "targets": [
                    {"name": "good", "rule": "sum_of_radii >= 2"},
                    {"name": "record", "rule": "sum_of_radii >= 2.635 and overlap <= 0", "unlock": True},
                ],
                "evaluator": "def evaluate(candidate): ...",
                **changes,
            }
        )

    return make


@pytest.fixture
def data_problem(problem: Callable[..., Problem]) -> Problem:
    return problem(kind="data", evaluator="def score(text): ...")


@pytest.fixture
def policy() -> Callable[..., Policy]:
    def make(answers: int = 1, **changes: Any) -> Policy:
        return Policy.model_validate({"slug": "asked", "kind": "scripted", "answers_per_rollout": answers, **changes})

    return make
