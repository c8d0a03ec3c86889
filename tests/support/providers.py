"""Answers and refusals in the shapes that providers document and users report, for contract tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class RecordedProvider:
    """Shapes of one provider.

    Attributes:
        answer: A completion.
        text: Its text.
        tokens: Its billed completion tokens, reasoning included.
        reasoning: Its reasoning tokens.
        models: Entry of the list of models for the model ``m``; None if there is no list.
        refused: Fields that the provider refuses, and the body of its response.
    """

    answer: dict[str, Any]
    text: str
    tokens: int
    reasoning: int = 0
    models: str | None = "m"
    refused: dict[str, Any] = field(default_factory=dict)


def _chat(content: str | None, usage: dict[str, Any], finish: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


def _usage(prompt: int, completion: int, total: int | None = None, **details: Any) -> dict[str, Any]:
    whole = prompt + completion if total is None else total
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": whole, **details}


def _openai(message: str, param: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def _google(name: str) -> list[dict[str, Any]]:
    text = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"description": text}]}]
    return [{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT", "details": details}}]


def _anthropic(message: str) -> dict[str, Any]:
    return {
        "error": {"code": "invalid_request_error", "message": message, "type": "invalid_request_error", "param": None}
    }


_REASONING: Final = {"completion_tokens_details": {"reasoning_tokens": 40, "accepted_prediction_tokens": 0}}

RECORDED: Final[dict[str, RecordedProvider]] = {
    "openai": RecordedProvider(
        _chat("x = 1", _usage(11, 50, **_REASONING), refusal=None, annotations=[]),
        "x = 1",
        50,
        40,
        refused={
            "max_tokens": _openai(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
                " instead.",
                "max_tokens",
                "unsupported_parameter",
            ),
            "temperature": _openai(
                "Unsupported value: 'temperature' does not support 1 with this model. Only the default (1) value is"
                " supported.",
                "temperature",
                "unsupported_value",
            ),
        },
    ),
    "anthropic": RecordedProvider(
        _chat("x = 1", _usage(11, 5), finish="stop"),
        "x = 1",
        5,
        models=None,
        refused={
            "n": _anthropic("n: must be exactly 1"),
            "top_p": _anthropic(
                "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
            ),
        },
    ),
    "gemini": RecordedProvider(
        _chat("x = 1", _usage(11, 5, total=46)),
        "x = 1",
        35,
        30,
        models="models/m",
        refused={"seed": _google("seed"), "logprobs": _google("logprobs")},
    ),
    "openrouter": RecordedProvider(
        _chat("x = 1", _usage(11, 25, completion_tokens_details={"reasoning_tokens": 20}), reasoning="I think."),
        "x = 1",
        25,
        20,
    ),
    "litellm": RecordedProvider(
        _chat("x = 1", _usage(11, 5)),
        "x = 1",
        5,
        refused={
            "n": {
                "error": {
                    "message": "litellm.UnsupportedParamsError: m does not support parameters: ['n'].",
                    "type": "None",
                    "param": None,
                    "code": "400",
                }
            }
        },
    ),
    "vllm": RecordedProvider(_chat(None, _usage(11, 64), finish="length", reasoning_content="Let me think."), "", 64),
    "ollama": RecordedProvider(_chat("x = 1", _usage(11, 5)), "x = 1", 5, models="m:latest"),
    "llamacpp": RecordedProvider(_chat("x = 1", {**_usage(11, 5), "timings": {"predicted_n": 5}}), "x = 1", 5),
    "lmstudio": RecordedProvider(_chat("x = 1", _usage(11, 5)), "x = 1", 5),
}
"""Shapes by the name of the preset."""
