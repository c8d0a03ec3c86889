"""Write sets of answers by continued requests: each answer of a set takes a request that continues those before it.

What stands between two answers is written here, so a small model cannot miss the form of a set, and any server that
continues a text or a message will do. The trainer writes the same (``speciate.training.rollout_rules``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from speciate.domain.policy import Policy
from speciate.domain.rollout import Completion
from speciate.domain.values import storable
from speciate.policies.request_fields import seed_of
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.compact import between_answers, opening_of, turns_of

Sample = Callable[[Sequence[SampleRequest]], list[SampleResult]]


def sample_sets(policy: Policy, requests: Sequence[SampleRequest], sample: Sample) -> list[SampleResult]:
    results = sample(requests)
    turns = [turns_of(policy, request.prompt, request.role) for request in requests]
    for turn in range(1, max(turns, default=1)):
        asked = [
            (i, j, _continued(policy, requests[i], completion, turn * requests[i].n + j))
            for i, result in enumerate(results)
            for j, completion in enumerate(result.completions)
            if turns[i] > turn and completion.has_answer
        ]
        for (i, j, request), answer in zip(asked, sample([request for *_, request in asked]), strict=True):
            results[i] = _joined(results[i], j, request.reply, answer)
    return results


def _continued(policy: Policy, request: SampleRequest, completion: Completion, number: int) -> SampleRequest:
    between = between_answers(opening_of(policy, request.prompt))
    reply = storable(f"{completion.text.rstrip()}{between}")  # a reply is sent, and half of a surrogate pair cannot be
    return replace(request, n=1, seed=seed_of(request.seed, number), reply=reply)


def _joined(result: SampleResult, place: int, reply: str, more: SampleResult) -> SampleResult:
    """Return a result with a further answer of one completion. Ids of tokens that a text was cut at are not known."""
    before, after = result.completions[place], more.completions[0]
    completion = before
    if after.has_answer:
        means = [(each.mean_logprob, each.tokens) for each in (before, after) if each.mean_logprob is not None]
        total = sum(tokens for _, tokens in means)
        completion = replace(
            after,
            text=reply + after.text,
            mean_logprob=sum(mean * tokens for mean, tokens in means) / total if total else after.mean_logprob,
            logprobs=(),
            token_ids=(),
            reasoning_tokens=before.reasoning_tokens + after.reasoning_tokens,
        )
    completions = list(result.completions)
    completions[place] = replace(completion, tokens=before.tokens + after.tokens)
    costs = [each.cost for each in (result, more) if each.cost is not None]
    return replace(
        result,
        completions=tuple(completions),
        prompt_tokens=result.prompt_tokens + more.prompt_tokens,
        latency_s=result.latency_s + more.latency_s / len(completions),
        estimated_tokens=result.estimated_tokens + more.estimated_tokens,
        cost=sum(costs) if costs else None,
    )
