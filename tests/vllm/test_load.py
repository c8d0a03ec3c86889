"""Load on vLLM: the prompts of a run share cached prefixes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from speciate.domain.candidate import Evaluation
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.policies import build_client
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.problems.loader import bundled, load_problem
from tests.support.openai_contract import ServedModel
from tests.support.served_run import served_policy, served_run


def _counted(served: ServedModel, name: str) -> float:
    found = re.findall(rf"^vllm:{name}_total\{{[^}}]*\}} (\S+)$", served.get("/metrics").text, re.MULTILINE)
    return sum(map(float, found))


class _Hashed:
    """Evaluator that scores any candidate by its text."""

    tier = "none"

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        size = len(problem.objectives)
        return [Evaluation(rewards=tuple(b / 256 for b in sha256(p.encode()).digest()[:size])) for p in programs]


class _Both:
    """Client that sends each prompt to the served model and returns the children of a program mutator."""

    def __init__(self, served: OpenAICompatible) -> None:
        self._served = served
        self._mutator = build_client(Policy(slug="mutator", kind="program_mutator"))
        self.asked = 0

    def token_ceiling(self, request: SampleRequest) -> int:
        return self._mutator.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        self.asked += len(requests)
        self._served.sample(requests)
        return self._mutator.sample(requests)

    def ping(self) -> str:
        return self._served.ping()


def test_prompts_of_a_run_share_their_beginning(chatty: ServedModel) -> None:
    policy = served_policy(
        chatty.url, chatty.name, prompt_tokens=12_000, prompt_format="chat", timeout_s=300, sampling={"max_tokens": 4}
    )
    spec = RunSpec.model_validate({"budget": {"evaluations": 57}, "lanes": 1, "batch": 4, "samples_per_prompt": 1})
    before = {name: _counted(chatty, name) for name in ("prefix_cache_queries", "prefix_cache_hits")}
    with OpenAICompatible(policy) as client:
        both = _Both(client)
        outcome = served_run(
            policy, spec, load_problem(bundled()["sorting-network-8"]), client=both, evaluator=_Hashed()
        )
    grown = {name: _counted(chatty, name) - value for name, value in before.items()}
    rate = grown["prefix_cache_hits"] / grown["prefix_cache_queries"]
    mean = grown["prefix_cache_queries"] / both.asked
    print(f"{both.asked} requests of {mean:.0f} tokens: {rate:.0%} of them were in the cache")  # noqa: T201
    assert outcome.progress.evaluated > 50
    assert both.asked >= 50
    assert rate > 0.5
