"""Validate requests of the OpenAI protocol as vLLM speaks it, and format error responses.

A field that would change completions and is not implemented is refused, never ignored.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, Self

from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_N: Final = 256
MAX_PROMPTS: Final = 256
MAX_TOPS: Final = 5
DEFAULT_MAX_TOKENS: Final = 16
"""Default of ``/v1/completions``, as in vLLM."""

# Unimplemented fields, with the values that have no effect.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "add_special_tokens": (True,),
    "length_penalty": (None, 1),
    "logit_bias": (None, {}),
    "repetition_penalty": (None, 1),
    "response_format": (None, {"type": "text"}),
    "skip_special_tokens": (None, True),
    "suffix": (None, ""),
    "tool_choice": (None, "none"),
    "top_k": (None, 0, -1),
    "best_of": (None, 1),
    **dict.fromkeys(("allowed_token_ids", "prompt_logprobs", "truncate_prompt_tokens"), (None,)),
    **dict.fromkeys(("guided_choice", "guided_grammar", "guided_json", "guided_regex", "structured_outputs"), (None,)),
    **dict.fromkeys(("bad_words", "stop_token_ids", "tools"), (None, [])),
    **dict.fromkeys(
        ("echo", "ignore_eos", "include_stop_str_in_output", "store", "stream", "use_beam_search"), (None, False)
    ),
    **dict.fromkeys(("frequency_penalty", "min_p", "min_tokens", "presence_penalty"), (None, 0)),
}
_WITHOUT_EFFECT: Final = frozenset({"user", "stream_options", "request_id", "priority", "metadata"})

Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class SamplingRequest(BaseModel):
    """Fields of both routes."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str
    n: int = Field(default=1, ge=1, le=MAX_N)
    temperature: float = Field(default=1.0, ge=0, le=100)
    """Softmax temperature; 0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    """Completion i is drawn from (seed, i); random by default."""
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    """Strings that end a completion and are not part of it."""
    return_token_ids: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_unsupported(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        for name in body.keys() & _NEUTRAL.keys():
            value = body[name]  # True equals 1 but must not count as it
            if not any(value is each or (value == each and type(value) is not bool) for each in _NEUTRAL[name]):
                raise ValueError(f"{name} is not supported by this server: leave it out")
        ignored = _NEUTRAL.keys() | _WITHOUT_EFFECT
        # vLLM treats null as an omitted field.
        return {key: value for key, value in body.items() if key not in ignored and value is not None}

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(SamplingRequest):
    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    """One or several prompts, as texts or token ids."""
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOPS)
    """Likeliest tokens to report at every position beside the sampled one; None reports nothing."""

    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [[token for token in self.prompt if isinstance(token, int)]]
        return [each for each in self.prompt if not isinstance(each, int)]


def _joined(content: Any) -> Any:
    """Return a list of text parts as one text, as vLLM joins them, and anything else as it is."""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content


class ChatMessage(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined)]


class ChatRequest(SamplingRequest):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest completion; by default the rest of the model's context."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_TOPS)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    """True to continue the last message, which is the assistant's, instead."""

    @model_validator(mode="after")
    def _ends_with_a_reply(self) -> Self:
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise ValueError("continue_final_message needs a last message of role assistant")
        if self.continue_final_message == self.add_generation_prompt:
            raise ValueError("expected either add_generation_prompt or continue_final_message")
        return self

    @property
    def longest(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


_TYPES: Final = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.UNAUTHORIZED: "AuthenticationError",
    HTTPStatus.FORBIDDEN: "PermissionDeniedError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


def error_response(
    status: HTTPStatus, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error response in vLLM's format."""
    kind = _TYPES.get(
        status, "InternalServerError" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "BadRequestError"
    )
    # A message may quote the request, and lone surrogates cannot be encoded.
    text = message.encode("utf-8", "replace").decode()
    body = {"error": {"message": text, "type": kind, "param": param, "code": int(status)}}
    return JSONResponse(body, status, headers=None if headers is None else dict(headers))
