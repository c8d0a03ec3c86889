"""HTTP server on loopback that speaks the OpenAI protocol and misbehaves on demand, for tests."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""

Misbehaviour = Callable[[int], Reply | None]
"""Return the reply that replaces the correct one, given the number of earlier requests."""


@dataclass
class Endpoint:
    """Behaviour of the server, and the requests that it has received.

    Attributes:
        url: Base URL.
        key: The only accepted key; None accepts every request.
        models: Entries of the model list, as names or whole entries.
        routes: Handlers by the end of a path; each takes the body.
        metrics: Content of ``/metrics``; None for no such route. Requests for it are not recorded below.
        misbehave: Replies that replace the correct ones.
        delay_s: Seconds before an answer.
        drip_s: Seconds between two bytes of an answer; None sends it at once.
        seen: Bodies of the requests, with their path.
        headers: Headers of the requests.
        lock: Held while the lists above change.
    """

    url: str = ""
    key: str | None = None
    models: tuple[str | dict[str, Any], ...] = ("m",)
    routes: dict[str, Callable[[Any], Reply]] = field(default_factory=dict)
    metrics: str | None = None
    misbehave: Misbehaviour = lambda _: None
    delay_s: float = 0.0
    drip_s: float | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, headers: dict[str, str], body: dict[str, Any] | None) -> Reply:
        """Return the reply to a request."""
        if (handler := next((self.routes[end] for end in self.routes if path.endswith(end)), None)) is not None:
            return handler(body)
        if path in ("/health", "/metrics"):
            served = self.metrics if path == "/metrics" else None
            return (404, {}, b"") if served is None else (200, {}, served.encode())
        return self._record(path, headers, body) or self._reply(path.partition("?")[0], headers, body or {})

    def _record(self, path: str, headers: dict[str, str], body: dict[str, Any] | None) -> Reply | None:
        """Record a request, and return the reply of ``misbehave`` if there is one."""
        with self.lock:
            number = len(self.headers)
            self.headers.append(headers)
            if body is not None:
                self.seen.append({"path": path, **body})
        return self.misbehave(number)

    def _reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        if self.key is not None and headers.get("Authorization") != f"Bearer {self.key}":
            message = f"Incorrect API key provided: {headers.get('Authorization')}"
            return 401, {}, json.dumps({"error": {"message": message}}).encode()
        if path.endswith("/models"):
            cards = [{"id": m} if isinstance(m, str) else m for m in self.models]
            return 200, {}, json.dumps({"object": "list", "data": cards}).encode()
        return 200, {}, json.dumps(completion_of(path, body)).encode()


def completion_of(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the correct answer: texts that depend on seed, index and prompt only."""
    chat = path.endswith("/chat/completions")
    prompt = json.dumps(body["messages"]) if chat else body["prompt"]
    choices = []
    for index in range(body["n"]):
        drawn = hashlib.sha256(f"{body['seed']}:{index}:{prompt}".encode()).hexdigest()
        logprobs = {"content": [{"logprob": -1.0}, {"logprob": -2.0}]} if chat else {"token_logprobs": [None, -3.0]}
        choices.append(
            {
                "index": index,
                **({"message": {"role": "assistant", "content": drawn}} if chat else {"text": drawn}),
                "logprobs": logprobs if body.get("logprobs") else None,
                "finish_reason": "stop",
            }
        )
    # Servers may return choices in any order; their index counts.
    return {"choices": choices[::-1], "usage": {"prompt_tokens": 11, "completion_tokens": 5 * body["n"]}}


class _EndpointServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Log nothing about disconnecting clients, which the tests cause."""


@contextmanager
def serve() -> Iterator[Endpoint]:
    """Run the server for the length of a ``with``."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: two would wait for a delayed acknowledgement

        def do_GET(self) -> None:
            """Answer a request without a body."""
            self._reply(endpoint.answer(self.path, dict(self.headers), None))

        def do_POST(self) -> None:
            """Answer a request with a body."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(endpoint.delay_s)
            self._reply(endpoint.answer(self.path, dict(self.headers), json.loads(body)))

        def _reply(self, reply: Reply) -> None:
            status, headers, body = reply
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                for byte in body if endpoint.drip_s is not None else ():
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(endpoint.drip_s or 0)
                if endpoint.drip_s is None:
                    self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Log nothing: tests read ``headers`` and ``seen``."""

    server = _EndpointServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
