"""Policies and evaluator of a worker, counted and traced: what they are asked and answer stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from speciate.domain.candidate import Evaluation
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import IdentifyingClient, PolicyClient, SampleRequest, SampleResult
from speciate.storage import counters
from speciate.storage.counters import Counters
from speciate.telemetry import tracing


@dataclass(frozen=True)
class CountedPolicy:
    """Counts latency, tokens and failures of a policy."""

    policy: Policy
    client: PolicyClient
    counters: Counters

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return a number of tokens that the request can never exceed."""
        return self.client.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order."""
        label = self.counters.policy(self.policy.slug)
        with tracing.span("policy", policy=self.policy.slug, requests=len(requests)):
            try:
                results = self.client.sample(requests)
            except PolicyUnavailableError:
                self.counters.add(counters.POLICY_FAILURES, label)
                raise
        for request, result in zip(requests, results, strict=True):
            role, completed = request.role.value, sum(each.tokens for each in result.completions)
            self.counters.observe(counters.POLICY_SECONDS, label, role, values=[result.latency_s])
            self.counters.add(counters.POLICY_TOKENS, label, role, "prompt", by=result.prompt_tokens)
            self.counters.add(counters.POLICY_TOKENS, label, role, "completion", by=completed)
        return results

    def ping(self) -> str:
        """Return one line that says the policy can be used."""
        return self.client.ping()

    def doubt(self) -> None:
        """Have the endpoint looked at again, where the client can."""
        if isinstance(self.client, IdentifyingClient):
            self.client.doubt()

    def identified(self) -> Policy:
        """Return the policy with what its endpoint says of it, where the client can tell."""
        return self.client.identified() if isinstance(self.client, IdentifyingClient) else self.policy


@dataclass(frozen=True)
class CountedEvaluator:
    """Counts evaluations by outcome and tier, and their time."""

    evaluator: EvaluatorClient
    counters: Counters

    @property
    def tier(self) -> str:
        """Containment in force."""
        return self.evaluator.tier

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Score programs, as the evaluator does."""
        with tracing.span("evaluator", problem=problem.slug, programs=len(programs)):
            results = self.evaluator.evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)
        outcomes = Counter((each.failure.kind.value if each.failure else "ok", each.tier) for each in results)
        for (outcome, tier), count in outcomes.items():
            self.counters.add(counters.EVALUATIONS, outcome, tier, by=count)
        for tier in {each.tier for each in results}:
            walls = [each.wall_s for each in results if each.tier == tier]
            self.counters.observe(counters.EVALUATION_SECONDS, tier, values=walls)
        return results
