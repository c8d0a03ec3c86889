"""Count and trace the calls of policies and evaluators, without changing requests or answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from speciate.domain.candidate import Evaluation
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import IdentifyingClient, PolicyClient, SampleRequest, SampleResult
from speciate.storage.metrics import counters
from speciate.storage.metrics.counters import WorkerCounters
from speciate.telemetry import tracing


@dataclass(frozen=True)
class CountedPolicy:
    """A policy client that counts latency, tokens and failures."""

    policy: Policy
    client: PolicyClient
    counters: WorkerCounters

    def token_ceiling(self, request: SampleRequest) -> int:
        return self.client.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        label = self.counters.policy(self.policy.slug)
        self.counters.add(counters.POLICY_FAILURES, label, by=0.0)  # Prometheus sees no increase from nothing to 4
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
        return self.client.ping()

    def revalidate(self) -> None:
        if isinstance(self.client, IdentifyingClient):
            self.client.revalidate()

    def identify(self) -> Policy:
        return self.client.identify() if isinstance(self.client, IdentifyingClient) else self.policy


@dataclass(frozen=True)
class CountedEvaluator:
    """An evaluator that counts evaluations by outcome and tier, and their time."""

    evaluator: EvaluatorClient
    counters: WorkerCounters

    @property
    def tier(self) -> str:
        return self.evaluator.tier

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        with tracing.span("evaluator", problem=problem.slug, programs=len(programs)):
            results = self.evaluator.evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)
        outcomes = Counter((each.failure.kind.value if each.failure else "ok", each.tier) for each in results)
        for (outcome, tier), count in outcomes.items():
            self.counters.add(counters.EVALUATIONS, outcome, tier, by=count)
        for tier in {each.tier for each in results}:
            walls = [each.wall_s for each in results if each.tier == tier]
            self.counters.observe(counters.EVALUATION_SECONDS, tier, values=walls)
        return results
