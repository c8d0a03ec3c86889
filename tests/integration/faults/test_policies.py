"""A policy endpoint that is down or malformed pauses the run with the reason; once it works, the run completes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from tests.integration.faults.conftest import Service
from tests.support.openai_endpoint import Reply, serve
from tests.support.runs import scored_toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

BUDGET = 24


def _down(_: int) -> Reply:
    return 503, {}, b"the model is loading"


def _garbage(_: int) -> Reply:
    return 200, {"Content-Type": "application/json"}, b'{"choices": "none", "data": [{"id": "m"}]}'


@pytest.mark.parametrize(("misbehave", "expected"), [(_down, "503"), (_garbage, "choices")])
def test_an_endpoint_that_cannot_be_used_pauses_the_run(
    service: Service, misbehave: Callable[[int], Reply], expected: str
) -> None:
    with serve() as endpoint:
        endpoint.misbehave = misbehave
        policy = Policy(
            slug=f"remote-{expected.lower()}",
            kind="openai_compatible",
            base_url=endpoint.url,
            model="m",
            options={"max_retries": 1},
        )
        spec = RunSpec.model_validate({"budget": {"evaluations": BUDGET}, "lanes": 2, "batch": 4})
        run_id = service.begin(scored_toy_problem(), policy, spec)
        paused = service.wait(run_id, lambda run: run.state.value == "paused")
        assert paused.reason is not None
        assert expected in paused.reason
        endpoint.misbehave = lambda _: None
        service.stores.signals.committed(service.stores.runs.resume(run_id))
        service.wait_for_end(run_id)
        service.check_complete(run_id, BUDGET)
