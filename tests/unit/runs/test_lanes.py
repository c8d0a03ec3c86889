"""How many lanes a run opens, and when."""

from __future__ import annotations

from uuid import uuid4

import pytest

from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.ports.work import RunContext
from speciate.runs.lanes import open_lanes
from speciate.runs.progress import RunProgress
from tests.support.runs import toy_problem


def context(lanes: int, **options: object) -> RunContext:
    spec = RunSpec.model_validate({"budget": {"evaluations": 500}, "lanes": lanes, **options})
    return RunContext(uuid4(), toy_problem(), Policy(slug="model", kind="scripted"), uuid4(), spec)


@pytest.mark.parametrize(
    ("seconds", "evaluations", "most", "lanes"),
    [
        (0.0, 0, 8, 1),
        (1.9, 0, 8, 1),
        (2.1, 0, 8, 4),  # the first request, or the seed program, takes long
        (120.0, 60, 8, 3),
        (130.0, 60, 8, 4),
        (130.0, 60, 2, 2),
        (1000.0, 160, 8, 8),
        (1000.0, 160, 1, 1),
    ],
)
def test_lanes_grow_with_the_evaluations_and_a_slow_run_has_four(
    seconds: float, evaluations: int, most: int, lanes: int
) -> None:
    progress = RunProgress(seconds=seconds, evaluations=evaluations)
    assert open_lanes(progress, context(most)) == range(lanes)


def test_a_lane_is_opened_once_and_stays() -> None:
    progress, run = RunProgress(seconds=30.0, evaluations=2), context(8)
    assert open_lanes(progress, run) == range(4)
    progress.evaluations = 40  # no longer slow: none closes
    assert not open_lanes(progress, run)
    progress.evaluations = 96
    assert open_lanes(progress, run) == range(4, 6)


def test_strategies_without_growth_open_all_lanes() -> None:
    assert open_lanes(RunProgress(), context(8, strategy="vector_evolution")) == range(8)
