"""Build OpenAI responses from finished requests."""

import secrets
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from speciate.inference.engine import GenerationRequest, SampledCompletion
from speciate.inference.tokenizer import StopStringWatcher, TextTokenizer
from speciate.policies.verification import by_text


def completion_text(text: TextTokenizer, request: GenerationRequest, index: int) -> str:
    """Return the text of a completion, up to its stop string if there is one."""
    if isinstance(request.stops, StopStringWatcher) and index in request.stops.cut:
        return request.stops.cut[index]
    return text.decode(request.sampled[index].token_ids)


def completions(
    model: str, text: TextTokenizer, requests: Sequence[GenerationRequest], *, logprobs: bool, ids: bool
) -> dict[str, Any]:
    sampled = [(request, i, request.sampled[i]) for request in requests for i in range(request.params.n)]
    choices = [
        {
            "index": number,
            "text": completion_text(text, request, index),
            "logprobs": _completion_logprobs(text, completion) if logprobs else None,
            "finish_reason": completion.finish_reason,
            **_ids(completion, ids),
        }
        for number, (request, index, completion) in enumerate(sampled)
    ]
    return _answer("cmpl", "text_completion", model, choices, requests)


def chat_completions(
    model: str, text: TextTokenizer, request: GenerationRequest, *, logprobs: bool, ids: bool
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": completion_text(text, request, index)},
            "logprobs": _chat_logprobs(text, request.sampled[index]) if logprobs else None,
            "finish_reason": request.sampled[index].finish_reason,
            **_ids(request.sampled[index], ids),
        }
        for index in range(request.params.n)
    ]
    return _answer("chatcmpl", "chat.completion", model, choices, [request])


def _ids(sampled: SampledCompletion, include: bool) -> dict[str, list[int]]:
    return {"token_ids": list(sampled.token_ids)} if include else {}


def _answer(
    prefix: str, kind: str, model: str, choices: list[dict[str, Any]], requests: Sequence[GenerationRequest]
) -> dict[str, Any]:
    read = sum(len(request.prompt) for request in requests)
    drawn = sum(len(sampled.token_ids) for request in requests for sampled in request.sampled.values())
    return {
        "id": f"{prefix}-{secrets.token_hex(16)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn},
    }


def _completion_logprobs(text: TextTokenizer, sampled: SampledCompletion) -> dict[str, Any]:
    tokens = [text.token(token) for token in sampled.token_ids]
    offsets = list(accumulate(text.lengths(sampled.token_ids[:-1]), initial=0))
    tops = [
        by_text([*((text.token(each), value) for each, value in likeliest), (token, logprob)])
        for likeliest, token, logprob in zip(sampled.tops or ((),) * len(tokens), tokens, sampled.logprobs, strict=True)
    ]
    return {"tokens": tokens, "token_logprobs": list(sampled.logprobs), "top_logprobs": tops, "text_offset": offsets}


def _chat_logprobs(text: TextTokenizer, sampled: SampledCompletion) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> dict[str, Any]:
        token_text = text.token(token)
        return {"token": token_text, "logprob": logprob, "bytes": list(token_text.encode("utf-8", "replace"))}

    places = zip(sampled.token_ids, sampled.logprobs, sampled.tops or ((),) * len(sampled.token_ids), strict=True)
    return {
        "content": [
            {**entry(token, logprob), "top_logprobs": [entry(*each) for each in likeliest]}
            for token, logprob, likeliest in places
        ]
    }
