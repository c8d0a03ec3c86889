"""The OpenAI protocol as vLLM speaks it, from the server's side: what may be asked, and how answers and refusals look.

A field that would change completions and is not implemented is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_N: Final = 256
MAX_PROMPTS: Final = 256
MAX_TOPS: Final = 5
DEFAULT_MAX_TOKENS: Final = 16
"""As in vLLM, where a completion names none."""

# Fields that are not implemented, with the values that ask for nothing.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "add_special_tokens": (True,),
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "best_of": (None,),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "ignore_eos": (None, False),
    "include_stop_str_in_output": (None, False),
    "length_penalty": (None, 1),
    "logit_bias": (None, {}),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "presence_penalty": (None, 0),
    "prompt_logprobs": (None,),
    "repetition_penalty": (None, 1),
    "response_format": (None, {"type": "text"}),
    "skip_special_tokens": (None, True),
    "stop_token_ids": (None, []),
    "stream": (None, False),
    "structured_outputs": (None,),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "top_k": (None, 0, -1),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
}
_WITHOUT_EFFECT: Final = frozenset({"user", "stream_options", "request_id", "priority", "metadata"})

Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class SamplingRequest(BaseModel):
    """What both routes read.

    Attributes:
        model: One that ``/v1/models`` lists.
        n: Completions of each prompt.
        temperature: Softmax temperature; 0 takes the likeliest token.
        top_p: Nucleus mass.
        seed: Completion i is drawn by (seed, i); by default something else every time.
        stop: Texts that end a completion; they are not part of it.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str
    n: int = Field(default=1, ge=1, le=MAX_N)
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_unsupported(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for name in given.keys() & _NEUTRAL.keys():
            value = given[name]
            # True equals 1, and must not pass for it.
            if not any(value == neutral and type(value) is not bool for neutral in _NEUTRAL[name]) and not any(
                value is neutral for neutral in _NEUTRAL[name]
            ):
                raise ValueError(f"{name} is not supported by this server: leave it out")
        kept = {key: value for key, value in given.items() if key not in _NEUTRAL and key not in _WITHOUT_EFFECT}
        # vLLM reads null as nothing said.
        return {key: value for key, value in kept.items() if value is not None}

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(SamplingRequest):
    """``POST /v1/completions``.

    Attributes:
        prompt: One or several, as texts or as token ids.
        max_tokens: Longest completion.
        logprobs: Likeliest tokens to report at every place beside the drawn one; None reports nothing.
    """

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOPS)

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts one by one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [[token for token in self.prompt if isinstance(token, int)]]
        return [each for each in self.prompt if not isinstance(each, int)]


class ChatMessage(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(SamplingRequest):
    """``POST /v1/chat/completions``.

    Attributes:
        messages: The conversation.
        max_tokens: Longest completion; by default all that the model's length leaves.
        max_completion_tokens: The same under its newer name.
        logprobs: Whether log-probabilities are reported.
        top_logprobs: Likeliest tokens to report at every place.
    """

    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_TOPS)

    @property
    def longest(self) -> int | None:
        """Longest completion, if the request says so."""
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
    """Return the answer that refuses a request, in vLLM's form."""
    kind = _TYPES.get(
        status, "InternalServerError" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "BadRequestError"
    )
    # A message may quote what a client sent, and lone surrogates cannot be sent back.
    text = message.encode("utf-8", "replace").decode()
    body = {"error": {"message": text, "type": kind, "param": param, "code": int(status)}}
    return JSONResponse(body, status, headers=None if headers is None else dict(headers))
