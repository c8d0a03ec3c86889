"""Runs with ``keep_tokens``: an endpoint that reports no tokens pauses them, a policy without a model is refused."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy
from speciate.domain.rollout import Completion
from speciate.domain.run import RunState
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.runs.checks import check_run
from speciate.schema.policies import PolicyVersion, RunPolicies
from tests.support.runs import toy_problem, toy_spec
from tests.support.served_run import served_policy, served_run

ANSWER = "```python\nx = 0.5\ny = 5\n```"


@dataclass
class FixedClient:
    """Answers every request with the same completion."""

    completion: Completion

    def token_ceiling(self, request: SampleRequest) -> int:
        return 100 * request.n

    def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
        assert all(request.keep_tokens for request in requests)
        return [SampleResult((self.completion,) * request.n) for request in requests]

    def ping(self) -> str:
        return "ready"


@pytest.mark.parametrize("logprobs", [(), (-0.5, -1.0)])
def test_an_endpoint_without_token_ids_pauses_the_run(logprobs: tuple[float, ...]) -> None:
    client = FixedClient(Completion(ANSWER, 2, logprobs=logprobs))
    run = served_run(served_policy("http://x.invalid/v1", "m"), toy_spec(9, keep_tokens=True), client=client)
    assert run.progress.state is RunState.PAUSED
    assert "policy 'served' reports no token ids and log-probabilities, which this run keeps" in run.progress.reason
    whole = FixedClient(Completion(ANSWER, 2, logprobs=(-0.5, -1.0), token_ids=(1, 2)))
    run = served_run(served_policy("http://x.invalid/v1", "m"), toy_spec(9, keep_tokens=True), client=whole)
    assert run.progress.state is RunState.COMPLETED


@pytest.mark.parametrize("kind", ["program_mutator", "command"])
def test_a_policy_without_a_model_server_is_refused(kind: str) -> None:
    policy = PolicyVersion.model_validate(
        {"id": UUID(int=1), "version": 2, "digest": "d", "created_at": "2026-01-01T00:00:00Z",
         "definition": Policy(slug="m", kind=kind, model="claude")}
    )  # fmt: skip

    class Stored:
        definition = toy_problem()

    with pytest.raises(InvalidInputError, match=f"policy m@2 of kind '{kind}' writes no tokens"):
        check_run(Stored(), RunPolicies(policy), toy_spec(9, keep_tokens=True))
