"""Build OpenAI responses from finished requests."""

import secrets
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from speciate.inference.engine import GenerationRequest, SampledCompletion
from speciate.inference.tokenizer import StopStringWatcher, TextTokenizer


def completion_text(text: TextTokenizer, request: GenerationRequest, index: int) -> str:
    """Return the text of a completion, up to its stop string if there is one."""
    if isinstance(request.stops, StopStringWatcher) and index in request.stops.cut:
        return request.stops.cut[index]
    return text.decode(request.sampled[index].token_ids)


def completions(
    model: str, text: TextTokenizer, requests: Sequence[GenerationRequest], *, chat: bool, logprobs: bool, ids: bool
) -> dict[str, Any]:
    logprobs_of = _chat_logprobs if chat else _completion_logprobs
    choices: list[dict[str, Any]] = []
    for request, index in ((each, index) for each in requests for index in range(each.params.n)):
        sampled, written = request.sampled[index], completion_text(text, request, index)
        choices.append({
            "index": len(choices),
            **({"message": {"role": "assistant", "content": written}} if chat else {"text": written}),
            "logprobs": logprobs_of(text, sampled) if logprobs else None,
            "finish_reason": sampled.finish_reason,
            **({"token_ids": list(sampled.token_ids)} if ids else {}),
        })  # fmt: skip
    read = sum(len(request.prompt) for request in requests)
    drawn = sum(len(sampled.token_ids) for request in requests for sampled in request.sampled.values())
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(16)}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn},
    }


def _completion_logprobs(text: TextTokenizer, sampled: SampledCompletion) -> dict[str, Any]:
    tokens = [text.token(token) for token in sampled.token_ids]
    offsets = list(accumulate(text.lengths(sampled.token_ids[:-1]), initial=0))
    tops = [
        # Of tokens that share a text, the likeliest counts.
        {token: logprob, **{text.token(each): value for each, value in reversed(likeliest)}}
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
