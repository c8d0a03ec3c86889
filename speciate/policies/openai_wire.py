"""Write requests and read responses of the OpenAI protocol as vLLM speaks it, without trusting the server."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from speciate.domain.policy import Policy, PromptFormat
from speciate.domain.rollout import ONLY_REASONING, REFUSED, Completion
from speciate.domain.values import storable
from speciate.policies.numbers import read_count, read_json, read_logprobs, read_token_ids, read_tokens
from speciate.policies.streams import is_stream, joined_parts, joined_stream
from speciate.policies.usage import TokenCeilings, Usage, divide, read_usage
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.compact import between_answers, opening_of, stops_of, turns_of
from speciate.prompts.text import printable

_FINGERPRINT: Final = "system_fingerprint"
_WEIGHTS: Final = "weights-sha256:"
_SEEDS: Final = 2**31
"""Seeds are sent modulo this number: some servers store them in 32 bits."""
_MOST_MARKS: Final = 4_000_000
"""Commas and opening brackets of a response, which bound its values: half a million tokens with log-probabilities."""
_MOST_ERROR: Final = 300
_QUOTED: Final = 200
"""Characters of an unexpected response that an error quotes."""
_MOST_NAME: Final = 4000
_MOST_DIGEST: Final = 200
_FILTERED: Final = ("content_filter", "safety", "refusal", "prohibited_content", "blocklist", "recitation", "sensitive")
"""Beginnings of finish reasons of a completion that a filter withheld."""
_PARTS: Final = frozenset({"message", "text", "finish_reason"})
"""Fields by which a choice is recognised."""
_OVERLOADED: Final = re.compile("server|overloaded|internal|unavailable|timeout|rate.?limit|upstream", re.IGNORECASE)
"""Words of an error's type and code that say nothing about the request."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str = ""
    """Its media type, in lower case."""
    retry_after: str | None = None

    @property
    def is_stream(self) -> bool:
        return is_stream(self.content_type, self.body)

    def quoted(self) -> str:
        """Return media type and beginning, for an error about an unexpected response."""
        text = printable(self.body[: 4 * _QUOTED].decode("utf-8", "replace").strip()[:_QUOTED]).replace("\n", " ")
        return ": ".join([*([self.content_type] if self.content_type else []), text or "an empty body"])


class MalformedResponseError(ValueError):
    """The response of the endpoint is not a completion; the text says what is wrong."""


@dataclass(eq=False)
class ErrorInResponseError(ValueError):
    """A response with status 200 states an error; ``status`` and ``body`` are those that it should have had."""

    status: int
    body: bytes


class EndpointMismatchError(Exception):
    """The endpoint answers, but does not serve the policy as registered."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ModelCard:
    id: str
    root: str | None = None
    """Folder or repository of its weights."""
    parent: str | None = None
    """For an adapter, the ``id`` of its base model."""
    max_model_len: int | None = None
    """Longest sequence in tokens, prompt and answer together; vLLM reports it for base models only."""
    digest: str | None = None
    """SHA-256 of its weights; the bundled inference server reports it."""


def path_of(policy: Policy) -> str:
    return "chat/completions" if policy.prompt_format is PromptFormat.CHAT else "completions"


def payload_of(policy: Policy, request: SampleRequest, *, stream: bool = False) -> dict[str, Any]:
    sampling, turns = policy.sampling, turns_of(policy, request.prompt, request.role)
    body: dict[str, Any] = {
        "model": policy.model,
        "n": request.n,
        "seed": request.seed % _SEEDS,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": policy.tokens_for(request.role) // turns,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    logprobs = sampling.logprobs or request.keep_tokens
    if policy.prompt_format is PromptFormat.CHAT:
        body["messages"] = request.prompt.messages(merged=policy.options.get("system_role") == "user")
        if logprobs:
            body["logprobs"] = True
    else:
        body["prompt"] = storable(request.prompt.text())
        if logprobs:
            body["logprobs"] = 1
    if opening := opening_of(policy, request.prompt):
        body |= _continued(body, opening + request.reply)
        if turns == policy.answers_for(request.role):
            body["stop"] = list(stops_of(opening))
    if request.keep_tokens:
        body["return_token_ids"] = True
    return body


def _continued(body: Mapping[str, Any], opening: str) -> dict[str, Any]:
    if "prompt" in body:
        return {"prompt": f"{body['prompt']}\n\n{opening}"}
    messages = [*body["messages"], {"role": "assistant", "content": opening}]
    return {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}


def most_reply(policy: Policy, request: SampleRequest) -> int:
    """Return the most tokens of a reply to continue: its answers, and what stands between them."""
    between = len(between_answers(opening_of(policy, request.prompt)).encode())
    return policy.tokens_for(request.role) + policy.answers_for(request.role) * between


def ceilings_of(policy: Policy, request: SampleRequest, overhead: int) -> TokenCeilings:
    prompt = len(storable(request.prompt.text()).encode())
    prompt += min(len(request.reply.encode()), most_reply(policy, request))
    chat = overhead if policy.prompt_format is PromptFormat.CHAT else 1
    longest = policy.tokens_for(request.role) // turns_of(policy, request.prompt, request.role)
    return TokenCeilings(prompt + chat, longest, request.n * longest)


def read_answer(
    reply: Reply, policy: Policy, request: SampleRequest, ceilings: TokenCeilings, latency_s: float
) -> SampleResult:
    """Return the completions of a response, in the order of their index.

    A choice without text is a completion without an answer; it does not spoil the other choices. Tokens are those that
    the endpoint reports, at most the ceiling. If it reports none, every byte counts as a token up to the ceiling, so
    that a budget holds whatever the endpoint reports. Raises ``MalformedResponseError``, ``ErrorInResponseError``, or
    ``EndpointMismatchError`` if the response states the SHA-256 of other weights than the registered ones.
    """
    data = _response(reply)
    _check_weights(data.get(_FINGERPRINT), policy.checkpoint_digest)
    choices = data.get("choices")
    parts = choices if isinstance(choices, list) else []
    finished = any(isinstance(part, dict) and part.get("finish_reason") not in (None, "error") for part in parts)
    if (error := data.get("error")) and not finished:  # an error can end a stream after part of a text
        raise ErrorInResponseError(_status_of(error), json.dumps({"error": error}).encode())
    if not isinstance(choices, list) and ("choices" not in data or choices is not None):
        raise MalformedResponseError(f"the response has no choices ({reply.quoted()})")
    usage = read_usage(data.get("usage"), ceilings)
    if not choices:  # Gemini and Azure withhold all of them
        return _result([{}], [(f"the response has no choices ({reply.quoted()})", REFUSED)], usage, ceilings, latency_s)
    if not any(isinstance(choice, dict) and choice.keys() & _PARTS for choice in choices):
        raise MalformedResponseError(f"the choices hold no message ({reply.quoted()})")
    known = (choice if isinstance(choice, dict) else {} for choice in choices)
    ordered = sorted(known, key=lambda choice: read_count(choice.get("index")) or 0)[: request.n]
    if all(choice.get("finish_reason") == "error" for choice in ordered):
        raise MalformedResponseError(f"all choices failed: {json.dumps(ordered[0].get('error'))[:_MOST_ERROR]}")
    read = [_read_choice(choice) for choice in ordered]
    return _result(ordered, read, usage, ceilings, latency_s, keep=policy.sampling.logprobs or request.keep_tokens)


def _result(
    choices: Sequence[Mapping[str, Any]],
    read: Sequence[tuple[str, str]],
    usage: Usage,
    ceilings: TokenCeilings,
    latency_s: float,
    *,
    keep: bool = False,
) -> SampleResult:
    shares = _counted(usage.completion, choices) or _shares(usage.completion, [text for text, _ in read], ceilings)
    prompt = usage.prompt or ceilings.prompt
    return SampleResult(
        completions=tuple(
            _completion(choice, text, finish, tokens, thought, keep=keep)
            for choice, (text, finish), tokens, thought in zip(
                choices, read, shares, divide(usage.reasoning, shares), strict=True
            )
        ),
        prompt_tokens=prompt,
        latency_s=latency_s,
        estimated_tokens=(0 if usage.prompt else prompt) + (sum(shares) if usage.completion is None else 0),
    )


def _response(reply: Reply) -> dict[str, Any]:
    what = "an event of the stream" if reply.is_stream else "the response"
    # Counted before parsing: 64 MiB of empty lists would take 1.6 GiB.
    marks = sum(reply.body.count(mark) for mark in b",[{")
    if marks > _MOST_MARKS:
        wrong = f"the response holds {marks} commas and opening brackets: more than {_MOST_MARKS}"
        raise MalformedResponseError(f"{wrong} ({reply.quoted()})")
    try:
        data = joined_stream(reply.body) if reply.is_stream else json.loads(reply.body)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedResponseError(f"{what} is not JSON ({type(error).__name__}) ({reply.quoted()})") from None
    if not isinstance(data, dict):
        raise MalformedResponseError(f"{what} is {type(data).__name__}: expected an object ({reply.quoted()})")
    return data


def _status_of(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    if (status := read_tokens(code)) is not None and 400 <= status < 600:
        return status
    kind = f"{error.get('type')} {code}" if isinstance(error, dict) else str(error)
    return 500 if _OVERLOADED.search(kind) else 400


def fingerprint(weights: str) -> dict[str, str]:
    """Return the response field that states the SHA-256 of the server's weights."""
    return {_FINGERPRINT: _WEIGHTS + weights}


def _check_weights(reported: object, registered: str | None) -> None:
    # The fingerprints of other servers describe their software.
    if registered is None or not isinstance(reported, str) or not reported.startswith(_WEIGHTS):
        return
    if (served := reported.removeprefix(_WEIGHTS)) != registered:
        raise EndpointMismatchError(
            f"it serves other weights, sha256 {served[:16]}, than sha256 {registered[:16]}",
            "Serve the registered weights, or register the served ones as the next version.",
        )


def reported_usage(reply: Reply, ceilings: TokenCeilings) -> Usage:
    """Return the tokens that any response reports, be it malformed or an error."""
    try:
        return read_usage(_response(reply).get("usage"), ceilings)
    except MalformedResponseError:
        return Usage()


def model_cards(body: bytes) -> list[ModelCard]:
    reply = Reply(200, body)
    listed = _response(reply).get("data")
    if not isinstance(listed, list):
        raise MalformedResponseError(f"the response lists no models ({reply.quoted()})")
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
    if (data := read_json(body)) is None:
        return body.decode("utf-8", "replace")
    if isinstance(data, list) and data:  # Gemini answers with a list
        data = data[0]
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return data if isinstance(data, str) else json.dumps(data)


def _read_choice(choice: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text and the finish reason of a choice, and what came instead of a text."""
    reported = choice.get("finish_reason")
    finish = reported[:40] if isinstance(reported, str) else "unknown"
    message = choice.get("message")
    message = message if isinstance(message, dict) else {"content": choice.get("text")}
    content = joined_parts(message.get("content"))
    text = content if isinstance(content, str) else ""
    if message.get("tool_calls") and "```" not in text:  # beside a sentence that announces them
        return f"{text}\n{_tool_calls(message['tool_calls'])}".strip(), finish
    if text.strip():
        return text, finish
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        return refusal, REFUSED
    if finish == "error" or finish.lower().startswith(_FILTERED):
        detail = f": {json.dumps(choice['error'])[:_MOST_ERROR]}" if choice.get("error") else ""
        return f"the completion ended with {finish!r}{detail}", REFUSED
    thoughts = (joined_parts(message.get(name)) for name in ("reasoning_content", "reasoning", "thinking"))
    thought = next((each for each in thoughts if isinstance(each, str) and each.strip()), "")
    # Truncated while reasoning, it has no text either; the parser says so.
    return (thought, ONLY_REASONING) if thought and finish != "length" else (text, finish)


def _tool_calls(calls: object) -> str:
    """Return the calls of tools that were not offered, in the form in which models write them as text."""
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return "\n".join(f"<tool_call>\n{json.dumps(function)}\n</tool_call>" for function in functions if function)


def _logprobs(choice: Mapping[str, Any]) -> list[object]:
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return []
    values = logprobs.get("token_logprobs")
    if isinstance(values, list):
        return values
    content = logprobs.get("content")
    return [item.get("logprob") for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def _completion(
    choice: Mapping[str, Any], text: str, finish: str, tokens: int, reasoning: int, *, keep: bool
) -> Completion:
    """Return a completion; ``keep`` its tokens' log-probabilities and ids, if the endpoint reports all of them."""
    reported = _logprobs(choice)
    logprobs = read_logprobs(reported)
    mean = sum(logprobs) / len(logprobs) if logprobs else None
    if not keep or len(logprobs) < len(reported):
        return Completion(text, tokens, finish, mean, reasoning_tokens=reasoning)
    ids = read_token_ids(choice.get("token_ids"))
    ids = ids if len(ids) == len(logprobs) else ()
    return Completion(text, tokens, finish, mean, tuple(logprobs), ids, reasoning)


def _counted(reported: int | None, choices: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """Return the tokens of each choice by its log-probabilities; None unless they add up to the reported number."""
    counts = [len(_logprobs(choice)) for choice in choices]
    return counts if sum(counts) == reported else None


def _shares(reported: int | None, texts: Sequence[str], ceilings: TokenCeilings) -> list[int]:
    """Divide the reported tokens among the completions in proportion to their bytes; the sum stays exact."""
    sizes = [len(text.encode("utf-8", "replace")) for text in texts]
    return [min(size + 1, ceilings.longest) for size in sizes] if reported is None else divide(reported, sizes)
