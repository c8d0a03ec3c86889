"""Write requests and read responses of the OpenAI protocol as vLLM speaks it, without trusting the server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from speciate.domain.policy import Policy, PromptFormat
from speciate.domain.rollout import Completion
from speciate.domain.values import storable
from speciate.policies.numbers import read_count, read_logprobs, read_token_ids
from speciate.policies.usage import TokenCeilings, divide, read_usage
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.compact import opening_of, stops_of

_FINGERPRINT: Final = "system_fingerprint"
_WEIGHTS: Final = "weights-sha256:"
_SEEDS: Final = 2**31
"""Seeds are sent modulo this number: some servers store them in 32 bits."""
_MOST_MARKS: Final = 4_000_000
_MOST_SAID: Final = 300
"""Commas and opening brackets of a response, which bound its values: half a million tokens with log-probabilities."""
_MOST_NAME: Final = 4000
_MOST_DIGEST: Final = 200
_WITHOUT_TEXT: Final = ("refusal", "reasoning_content", "reasoning")
"""Parts of a message that explain a missing text."""


class MalformedResponseError(ValueError):
    """The response of the endpoint is not a completion; the text says what is wrong."""


class WeightsMismatchError(ValueError):
    """The response comes from other weights than the registered ones."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Entry of a model list.

    Attributes:
        id: Model name in requests.
        root: Folder or repository of its weights.
        parent: For an adapter, the ``id`` of its base model.
        max_model_len: Longest sequence in tokens, prompt and answer together; vLLM reports it for base models only.
        digest: SHA-256 of its weights; the bundled inference server reports it.
    """

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
    digest: str | None = None


def path_of(policy: Policy) -> str:
    """Return the route of the policy's requests, relative to its base URL."""
    return "chat/completions" if policy.prompt_format is PromptFormat.CHAT else "completions"


def payload_of(policy: Policy, request: SampleRequest) -> dict[str, Any]:
    """Return the body of a request in the names of the OpenAI protocol."""
    sampling = policy.sampling
    body: dict[str, Any] = {
        "model": policy.model,
        "n": request.n,
        "seed": request.seed % _SEEDS,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": policy.tokens_for(request.role),
        "stream": False,
    }
    logprobs = sampling.logprobs or request.keep_tokens
    if policy.prompt_format is PromptFormat.CHAT:
        body["messages"] = request.prompt.messages()
        if logprobs:
            body["logprobs"] = True
    else:
        body["prompt"] = storable(request.prompt.text())
        if logprobs:
            body["logprobs"] = 1
    if opening := opening_of(policy, request.prompt):
        body |= _continued(body, opening)
        if policy.answers_for(request.role) == 1:
            body["stop"] = list(stops_of(opening))
    if request.keep_tokens:
        body["return_token_ids"] = True
    return body


def _continued(body: Mapping[str, Any], opening: str) -> dict[str, Any]:
    """Return the fields that make a completion continue an opened reply."""
    if "prompt" in body:
        return {"prompt": f"{body['prompt']}\n\n{opening}"}
    messages = [*body["messages"], {"role": "assistant", "content": opening}]
    return {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}


def ceilings_of(policy: Policy, request: SampleRequest, overhead: int) -> TokenCeilings:
    """Return upper bounds of a request's tokens; ``overhead`` bounds the tokens of a chat template."""
    prompt = len(storable(request.prompt.text()).encode())
    chat = overhead if policy.prompt_format is PromptFormat.CHAT else 1
    longest = policy.tokens_for(request.role)
    return TokenCeilings(prompt + chat, longest, request.n * longest)


def read_answer(
    body: bytes, policy: Policy, request: SampleRequest, ceilings: TokenCeilings, latency_s: float
) -> SampleResult:
    """Return the completions of a response, in the order of their index.

    Tokens are those that the endpoint reports, at most the ceiling. If it reports none, every byte counts as a token up
    to the ceiling, so that a budget holds whatever the endpoint reports.

    Raises:
        MalformedResponseError: The body is not a completion.
        WeightsMismatchError: It states the SHA-256 of other weights than the registered ones.
    """
    data = _object(_json(body), "the response")
    _check_weights(data.get(_FINGERPRINT), policy.checkpoint_digest)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        said = f": {error_message(body)[:_MOST_SAID]}" if "error" in data else ""
        raise MalformedResponseError(f"the response has no choices{said}")
    ordered = sorted((_object(choice, "a choice") for choice in choices), key=_index)[: request.n]
    if failed := [choice for choice in ordered if choice.get("finish_reason") == "error"]:
        raise MalformedResponseError(f"a choice failed: {json.dumps(failed[0].get('error'))[:_MOST_SAID]}")
    texts = [_text(choice, policy.prompt_format) for choice in ordered]
    usage = read_usage(data.get("usage"), ceilings)
    shares = _counted(usage.completion, ordered) or _shares(usage.completion, texts, ceilings.longest)
    reasoning = divide(usage.reasoning, shares)
    return SampleResult(
        completions=tuple(
            _completion(choice, text, tokens, thought, keep=policy.sampling.logprobs or request.keep_tokens)
            for choice, text, tokens, thought in zip(ordered, texts, shares, reasoning, strict=True)
        ),
        prompt_tokens=usage.prompt or ceilings.prompt,
        latency_s=latency_s,
    )


def fingerprint(weights: str) -> dict[str, str]:
    """Return the response field that states the SHA-256 of the server's weights."""
    return {_FINGERPRINT: _WEIGHTS + weights}


def _check_weights(reported: object, registered: str | None) -> None:
    # The fingerprints of other servers describe their software.
    if registered is None or not isinstance(reported, str) or not reported.startswith(_WEIGHTS):
        return
    if (served := reported.removeprefix(_WEIGHTS)) != registered:
        raise WeightsMismatchError(f"it serves other weights, sha256 {served[:16]}, than sha256 {registered[:16]}")


def reported_tokens(body: bytes, ceilings: TokenCeilings) -> int:
    """Return the tokens that a malformed response reports; 0 if it reports none."""
    try:
        usage = read_usage(_object(_json(body), "the response").get("usage"), ceilings)
    except MalformedResponseError:
        return 0
    return (usage.prompt or 0) + (usage.completion or 0)


def model_cards(body: bytes) -> list[ModelCard]:
    """Return the models that ``GET /models`` lists.

    Raises:
        MalformedResponseError: The body is not a list of models.
    """
    listed = _object(_json(body), "the response").get("data")
    if not isinstance(listed, list):
        raise MalformedResponseError("the response lists no models")
    return [_card(item) for item in listed if isinstance(item, dict) and "id" in item]


def _card(item: Mapping[str, Any]) -> ModelCard:
    length, more = item.get("max_model_len"), item.get("metadata")
    digest = more.get("checkpoint_digest") if isinstance(more, dict) else None
    root, parent, digest = (
        storable(value)[:_MOST_NAME] if isinstance(value, str) and value else None
        for value in (item.get("root"), item.get("parent"), digest)
    )
    return ModelCard(str(item["id"]), root, parent, read_count(length) or None, digest and digest[:_MOST_DIGEST])


def error_message(body: bytes) -> str:
    """Return the message of an error response; servers put it under different keys."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    if isinstance(data, list) and data:  # Gemini answers with a list
        data = data[0]
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return data if isinstance(data, str) else json.dumps(data)


def _json(body: bytes) -> object:
    # Counted before parsing: 64 MiB of empty lists would take 1.6 GiB.
    marks = sum(body.count(mark) for mark in b",[{")
    if marks > _MOST_MARKS:
        raise MalformedResponseError(f"the response holds {marks} commas and opening brackets: more than {_MOST_MARKS}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponseError(f"the response is not JSON ({type(error).__name__})") from None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedResponseError(f"{what} is {type(value).__name__}: expected an object")
    return value


def _index(choice: Mapping[str, Any]) -> int:
    return read_count(choice.get("index")) or 0


def _text(choice: Mapping[str, Any], prompt_format: PromptFormat) -> str:
    if prompt_format is PromptFormat.COMPLETION:
        text = choice.get("text")
    else:
        message = _object(choice.get("message"), "the message of a choice")
        text = _joined(message.get("content"))
        if not text and message.get("tool_calls"):
            return _tool_calls(message["tool_calls"])
        if text is None and (choice.get("finish_reason") != "stop" or any(map(message.get, _WITHOUT_TEXT))):
            # Truncated while reasoning, or refused: an answer without a program, which still costs tokens.
            return ""
    if not isinstance(text, str):
        raise MalformedResponseError(f"the text of a choice is {type(text).__name__}: expected a string")
    return text


def _joined(content: object) -> object:
    """Return the texts of a content that is a list of parts, as of some models that reason."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls(calls: object) -> str:
    """Return the calls of tools that were not offered, in the form in which models write them as text."""
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return "\n".join(f"<tool_call>\n{json.dumps(function)}\n</tool_call>" for function in functions if function)


def _finish(choice: Mapping[str, Any]) -> str:
    reason = choice.get("finish_reason")
    return reason[:40] if isinstance(reason, str) else "unknown"


def _logprobs(choice: Mapping[str, Any]) -> list[object]:
    """Return the log-probabilities of a choice's tokens; empty if they are not reported."""
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return []
    values = found.get("token_logprobs")
    if isinstance(values, list):
        return values
    content = found.get("content")
    return [item.get("logprob") for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def _completion(choice: Mapping[str, Any], text: str, tokens: int, reasoning: int, *, keep: bool) -> Completion:
    """Return a completion; ``keep`` its tokens' log-probabilities and ids, if the endpoint reports all of them."""
    reported = _logprobs(choice)
    known = read_logprobs(reported)
    mean = sum(known) / len(known) if known else None
    if not keep or len(known) < len(reported):
        return Completion(text, tokens, _finish(choice), mean, reasoning_tokens=reasoning)
    ids = read_token_ids(choice.get("token_ids"))
    ids = ids if len(ids) == len(known) else ()
    return Completion(text, tokens, _finish(choice), mean, tuple(known), ids, reasoning)


def _counted(reported: int | None, choices: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """Return the tokens of each choice by its log-probabilities; None unless they add up to the reported number."""
    counts = [len(_logprobs(choice)) for choice in choices]
    return counts if sum(counts) == reported else None


def _shares(reported: int | None, texts: Sequence[str], max_tokens: int) -> list[int]:
    """Divide the reported tokens among the completions in proportion to their bytes; the sum stays exact."""
    sizes = [len(text.encode("utf-8", "replace")) for text in texts]
    return [min(size + 1, max_tokens) for size in sizes] if reported is None else divide(reported, sizes)
