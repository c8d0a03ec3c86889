"""The two addresses of an engine: a model and an evaluator on loopback, which pass on to the service.

The engine gets no token of the service, no key of a model and no file of the evaluator.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, Protocol, Self, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from speciate.client.evaluation_worker import retried
from speciate.domain import errors
from speciate.domain.values import digest_of
from speciate.schema.engines import EngineEvaluation, EngineSession, ModelAnswer

T = TypeVar("T")

GRACE_S: Final = 15.0
"""Seconds in which an engine whose budget is spent may save its state and end."""
_CONCURRENCY, _MOST_CONCURRENCY = 2, 64
_CONFLICT_S: Final = 10.0
_BODY_BYTES: Final = 16 << 20
_CHUNK: Final = "chat.completion.chunk"
_IDLE_S: Final = 600.0
_MOST_CONNECTIONS: Final = 512
_STATUSES: Final = {
    errors.BudgetSpentError: 410, errors.ConflictError: 409, errors.NotFoundError: 404, errors.TooLargeError: 413,
    errors.InvalidInputError: 422,
}  # fmt: skip


class EngineService(Protocol):
    """What the relay needs of ``Client.engines``."""

    def complete(self, session: UUID, messages: Sequence[Mapping[str, str]], *, n: int = 1) -> ModelAnswer: ...

    def evaluate(self, session: UUID, program: str, *, key: str = "") -> EngineEvaluation: ...


class _Program(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    program: str
    id: str = Field(default="", max_length=200)


class _Part(BaseModel):
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    role: str
    content: str | list[_Part]

    def plain(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class _Chat(BaseModel):
    """Sampling is the policy's affair: other fields are ignored."""

    messages: list[_Message] = Field(min_length=1)
    n: int | None = Field(default=1, ge=1, le=64)
    stream: bool | None = False


class Relay:
    """Server of one session's addresses, for the length of a ``with``."""

    def __init__(self, service: EngineService, session: EngineSession) -> None:
        self.refused: Counter[str] = Counter()
        """Refused requests by kind: ``budget``, ``score``, ``flood``, ``request``."""
        wanted = session.engine_options.get("concurrency", _CONCURRENCY)
        self.concurrency = min(max(wanted, 1), _MOST_CONCURRENCY) if isinstance(wanted, int) else _CONCURRENCY
        """Requests that the engine is to send at a time."""
        self.spent_at: float | None = None
        """Monotonic time since which no evaluation is left, or requests are refused for the budget."""
        self.asked = False
        """True once a request has come."""
        self.conflict = threading.Event()
        """Set if the service refuses a request for the state of the session or the run."""
        self._refusing = False
        self._pending: set[str] = set()
        self._service, self._session = service, session
        self._places = threading.Semaphore(4 * self.concurrency)
        self._closed = threading.Event()
        self._root = f"/{secrets.token_urlsafe(12)}"  # other users of this machine reach the port, too
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"relay": self}))
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="engine-relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that tell the engine its addresses."""
        root = f"http://127.0.0.1:{self.port}{self._root}"
        return {
            **dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE", "SPECIATE_MODEL_URL"), f"{root}/v1"),
            "OPENAI_API_KEY": "none",
            "SPECIATE_MODEL": self._session.model,
            "SPECIATE_EVALUATOR_URL": f"{root}/evaluate",
        }

    @property
    def overdue(self) -> bool:
        """True if the engine goes on although its budget is spent and every evaluation has a result."""
        return self.spent_at is not None and time.monotonic() - self.spent_at > GRACE_S and not self._pending

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of the response to a request; a path without a body lists the model."""
        self.asked = True
        routes = {"/evaluate": self._evaluate, "/v1/chat/completions": self._complete, "/v1/models": self._models}
        route = routes.get(path.partition("?")[0].removeprefix(self._root)) if path.startswith(self._root) else None
        if not self._places.acquire(blocking=False):
            return self._refuse(429, "too_many_requests", "Too many requests wait: send fewer at a time.", "flood")
        try:
            if route is None:
                raise errors.NotFoundError("There are /v1/chat/completions, /v1/models and /evaluate only.")
            if self._refusing or (self.spent_at and time.monotonic() - self.spent_at > GRACE_S):
                raise errors.BudgetSpentError("The budget of the run is spent: end now.")
            return 200, route(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            message = f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
            return self._refuse(422, "invalid_request", message, "score" if route == self._evaluate else "request")
        except errors.SpeciateError as error:
            status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 503)
            if status == 409:  # perhaps the run is paused or the lease lost: then the runner ends the engine meanwhile
                self.conflict.set()
                self._closed.wait(_CONFLICT_S)
            if status == 410:
                self._refusing, self.spent_at = True, self.spent_at or time.monotonic()
            kind = "budget" if status == 410 else "service" if status == 503 else "request"
            return self._refuse(status, error.slug.replace("-", "_"), str(error), kind)
        finally:
            self._places.release()

    def _refuse(self, status: int, code: str, message: str, kind: str) -> tuple[int, dict[str, Any]]:
        self.refused[kind] += 1
        return status, {"error": {"code": code, "type": code, "message": message}}

    def _models(self, _: bytes) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": self._session.model, "object": "model"}]}

    def _evaluate(self, body: bytes) -> dict[str, Any]:
        sent = _Program.model_validate_json(body)
        key = digest_of(sent.id) if sent.id else str(uuid4())  # keys have no blanks
        self._pending.add(key)
        try:
            result = self._call(lambda: self._service.evaluate(self._session.id, sent.program, key=key))
        finally:
            self._pending.discard(key)
        if result.evaluations_left == 0:
            self.spent_at = self.spent_at or time.monotonic()
        return result.model_dump(mode="json", exclude={"pending"})

    def _complete(self, body: bytes) -> dict[str, Any]:
        chat = _Chat.model_validate_json(body)
        messages = [message.plain() for message in chat.messages]
        answer = self._call(lambda: self._service.complete(self._session.id, messages, n=chat.n or 1))
        place = "delta" if chat.stream else "message"
        choices = [
            {"index": i, place: {"role": "assistant", "content": text}, "finish_reason": answer.finish_reason}
            for i, text in enumerate(answer.completions)
        ]
        usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        return {
            "id": f"chatcmpl-{uuid4().hex}",
            "object": _CHUNK if chat.stream else "chat.completion",
            "created": int(time.time()),
            "model": self._session.model,
            "choices": choices,
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }

    def _call(self, call: Callable[[], T]) -> T:
        if (result := retried(call, self._closed)) is None:
            raise errors.UnavailableError("The relay has ended.")
        return result


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._places = threading.Semaphore(_MOST_CONNECTIONS)  # of this engine: others go on

    def verify_request(self, *_: object) -> bool:
        return self._places.acquire(blocking=False)

    def process_request_thread(self, *args: Any) -> None:
        try:
            super().process_request_thread(*args)
        finally:
            self._places.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing: the engine ended, or sent no HTTP."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    timeout = _IDLE_S
    relay: Relay

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "" if "Transfer-Encoding" in self.headers else "0")
        if length.isdecimal() and int(length) <= _BODY_BYTES:
            status, answer = self.relay.answer(self.path, self.rfile.read(int(length)))
        else:
            self.close_connection = True
            status, code, message = 413, "too_large", f"At most {_BODY_BYTES} bytes."
            if not length.isdecimal():
                status, code, message = 411, "length_required", "Send the length of the body as Content-Length."
            answer = {"error": {"code": code, "message": message}}
        streamed, data = answer.get("object") == _CHUNK, to_json(answer)
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        data = b"data: " + data + b"\n\ndata: [DONE]\n\n" if streamed else data
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
