"""ASGI application of the inference server: vLLM's routes over engines. ``create_app({"name": folder})``."""

import asyncio
import ctypes
import gc
import math
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from speciate.domain import errors
from speciate.domain.errors import InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.validation import validation_message
from speciate.inference.engine import GenerationRequest, SamplingParams
from speciate.inference.models import LoadedModel, ServedModels, load_model
from speciate.inference.protocol import MAX_N, ChatRequest, CompletionRequest, SamplingRequest, error_response
from speciate.inference.responses import completions
from speciate.inference.scheduler import Scheduler
from speciate.inference.tokenizer import TextTokenizer
from speciate.loopback import bearer_token, refusal_reason, same_token
from speciate.policies.openai_wire import fingerprint

_STATUSES: Final[dict[type[SpeciateError], HTTPStatus]] = {
    errors.InvalidInputError: HTTPStatus.BAD_REQUEST,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SpeciateError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_MAX_BODY_BYTES: Final = 8 << 20
_MOST_COMPLETIONS: Final = 4 * MAX_N


def create_app(
    models: Mapping[str, Path],
    *,
    token: str | None = None,
    learned: Path | None = None,
    waiting: bool = False,
    rest_s: float = math.inf,
) -> FastAPI:
    """Return the application; ``ConfigurationError`` if a checkpoint cannot be used.

    Args:
        token: Token that requests must carry; None admits requests over loopback without one.
        learned: Folder of the versions that runs learn, each of which is loaded when it is first requested.
        waiting: True to load each checkpoint when it is first requested; False (default) loads and checks all now.
        rest_s: Seconds without a request after which a model that was loaded on request is unloaded.
    """
    loaded = {} if waiting else {name: load_model(folder) for name, folder in models.items()}
    served = ServedModels(loaded, models if waiting else {}, learned)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.routes.scheduler = Scheduler({name: each.engine for name, each in loaded.items()})
        unloading = asyncio.create_task(_unload_idle(served, app.state.routes.scheduler, rest_s))
        yield
        unloading.cancel()
        await asyncio.to_thread(app.state.routes.scheduler.close)

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.routes = routes = Routes(served)
    app.get("/health")(routes.health)
    app.get("/v1/models")(routes.models)
    app.post("/v1/completions")(routes.completions)
    app.post("/v1/chat/completions")(routes.chat_completions)
    app.add_exception_handler(SpeciateError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(AccessMiddleware, token=token)
    return app


async def _unload_idle(served: ServedModels, scheduler: Scheduler, rest_s: float) -> None:
    while rest_s < math.inf:
        await asyncio.sleep(rest_s / 2)
        if served.unload_idle(scheduler, rest_s):
            await asyncio.to_thread(_return_memory)


def _return_memory() -> None:
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


class Routes:
    scheduler: Scheduler

    def __init__(self, served: ServedModels) -> None:
        self._served = served
        self._started = int(time.time())

    async def health(self) -> Response:
        return Response(status_code=HTTPStatus.OK if self.scheduler.alive else HTTPStatus.SERVICE_UNAVAILABLE)

    async def models(self) -> dict[str, Any]:
        cards = await asyncio.to_thread(self._served.cards)
        data = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "speciate",
                "max_model_len": card.max_model_len,
                "metadata": {"checkpoint_digest": card.digest},
            }
            for name, card in cards.items()
        ]
        return {"object": "list", "data": data}

    async def completions(self, body: CompletionRequest, http: HttpRequest) -> JSONResponse:
        served = await self._find(body.model)
        prompts = body.prompts()
        if len(prompts) * body.n > _MOST_COMPLETIONS:
            raise InvalidInputError(
                f"{len(prompts)} prompts with n = {body.n} are {len(prompts) * body.n} completions: this server"
                f" answers {_MOST_COMPLETIONS} at once."
            )
        tokenized = (served.text.encode(each) if isinstance(each, str) else tuple(each) for each in prompts)
        unchecked = (_request(served.text, body, each, body.max_tokens, body.logprobs or 0) for each in tokenized)
        requests = await self._complete(body.model, unchecked, http)
        answer = completions(
            body.model, served.text, requests, chat=False, logprobs=body.logprobs is not None, ids=body.return_token_ids
        )
        return JSONResponse(answer | fingerprint(served.card.digest))

    async def chat_completions(self, body: ChatRequest, http: HttpRequest) -> JSONResponse:
        served = await self._find(body.model)
        messages = [message.model_dump() for message in body.messages]
        opening = messages.pop()["content"] if body.continue_final_message else ""
        prompt = served.text.chat(messages, opening)
        left = served.engine.checkpoint.config.max_position_embeddings - len(prompt)
        request = _request(served.text, body, prompt, body.longest or max(left, 1), body.top_logprobs)
        requests = await self._complete(body.model, [request], http)
        answer = completions(
            body.model, served.text, requests, chat=True, logprobs=body.logprobs, ids=body.return_token_ids
        )
        return JSONResponse(answer | fingerprint(served.card.digest))

    async def _find(self, model: str) -> LoadedModel:
        if not await self._served.prepare(model, self.scheduler):
            raise NotFoundError(f"there is no model {model[:200]!r}: this server has {', '.join(self._served.names)}.")
        return self._served.loaded[model]

    async def _complete(
        self, model: str, unchecked: Iterable[GenerationRequest], http: HttpRequest
    ) -> list[GenerationRequest]:
        """Wait for requests; cancel all of them if the client disconnects or one fails."""
        requests: list[GenerationRequest] = []
        futures: list[asyncio.Future[GenerationRequest]] = []
        try:
            # Check all before any starts, and each before the next one is tokenized.
            for request in unchecked:
                self._served.loaded[model].engine.check(request)
                requests.append(request)
            # Extend one by one, so that the futures before a refused one are cancelled.
            futures.extend(asyncio.wrap_future(self.scheduler.submit(model, request)) for request in requests)
            await _while_connected(futures, http)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return requests


def _request(
    text: TextTokenizer, request: SamplingRequest, prompt: tuple[int, ...], max_tokens: int, tops: int
) -> GenerationRequest:
    seed = secrets.randbits(63) if request.seed is None else request.seed
    params = SamplingParams(request.n, max_tokens, request.temperature, request.top_p, seed, tops)
    return GenerationRequest(prompt, params, stops=text.watch(request.stops) if request.stops else None)


async def _while_connected(futures: Sequence[asyncio.Future[GenerationRequest]], http: HttpRequest) -> None:
    """Wait for futures; ``UnavailableError`` if the client disconnects, so that nobody reads the response."""
    disconnected = asyncio.ensure_future(_disconnected(http))
    results = asyncio.ensure_future(asyncio.gather(*futures, return_exceptions=True))
    waiting: set[asyncio.Future[Any]] = {results, disconnected}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnected.cancel()
    if not results.done():
        raise errors.UnavailableError("the client disconnected.")
    for outcome in results.result():
        if isinstance(outcome, BaseException):
            raise outcome


async def _disconnected(http: HttpRequest) -> None:
    """Wait until the client disconnects; its request has been read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _ours(_: HttpRequest, error: Exception) -> JSONResponse:
    status = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return error_response(status, str(error), headers=headers)


async def _invalid(_: HttpRequest, error: Any) -> JSONResponse:
    # The input is not repeated: it may be large or hostile.
    first, *others = error.errors()
    # Of a union pydantic reports every member, and appends its name: the one of the right type says what is wrong.
    tried = [first, *(other for other in others if other["loc"][:2] == first["loc"][:2])]
    detail = next((each for each in tried if not each["type"].endswith("_type")), first)
    place = str(detail["loc"][1]) if len(detail["loc"]) > 1 and isinstance(detail["loc"][1], str) else ""
    unknown = detail["type"] == "extra_forbidden"
    words = "is unknown to this server: leave it out" if unknown else validation_message(detail)
    message = f"{place[:200]}: {words}." if place else f"{words}."
    return error_response(HTTPStatus.BAD_REQUEST, message, param=place[:200] or None)


async def _http(_: HttpRequest, error: Any) -> JSONResponse:
    status = HTTPStatus(error.status_code)
    return error_response(status, f"{status.phrase}: this server has {', '.join(_PATHS)}.")


async def _unexpected(_: HttpRequest, __: Exception) -> JSONResponse:
    # Starlette raises the error again after this response, so the server logs it with its traceback.
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal server error: see the server's log.")


_PATHS: Final = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/health")


class AccessMiddleware:
    """Middleware that passes a request on, or answers 401, 403, 411 or 413.

    Without a token the server admits requests of this machine under a loopback name, and none from a page of another
    origin. The rules are those of the service.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] == "/health":
            return None
        client = scope.get("client")
        if self._token is not None:
            if not same_token(bearer_token(headers), self._token):
                message = "this server requires a token: send it as 'Authorization: Bearer TOKEN'."
                return error_response(HTTPStatus.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})
        elif (
            reason := refusal_reason(client and client[0], headers, "SPECIATE_SERVE_TOKEN", changes=True)
        ) is not None:
            return error_response(HTTPStatus.FORBIDDEN, reason)
        if scope["method"] != "POST":
            return None
        declared = headers.get("content-length", "")
        closing = {"Connection": "close"}  # the rest of the body is not read
        if not declared.isdecimal():
            return error_response(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length.", headers=closing)
        if int(declared) <= _MAX_BODY_BYTES:
            return None
        message = f"the body is over {_MAX_BODY_BYTES} bytes."
        return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, headers=closing)
