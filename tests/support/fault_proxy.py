"""Proxy that breaks an inference server's responses after they were computed, as networks and restarts do."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


class Fault(StrEnum):
    """Fault of one request."""

    SWALLOWED = "swallowed"
    """The answer is computed and never arrives."""
    CUT = "cut"
    """The answer is computed, and the connection is reset in the middle of it."""
    ERROR = "error"
    """The answer is computed, and status 500 arrives."""
    GARBLED = "garbled"
    """The answer is computed and arrives without its choices."""
    DROPPED = "dropped"
    """The connection closes before anything is computed."""
    BUSY = "busy"
    """Nothing is computed: status 429 with an immediate retry."""


@dataclass
class FaultProxy:
    """A running proxy.

    Attributes:
        url: Base URL.
        faults: Return the fault of a request, given the number of earlier ones; None passes the answer on.
        hold_s: Seconds after which the connection of a swallowed answer closes.
        computed: Tokens that the server reported for every request.
    """

    url: str = ""
    faults: Callable[[int], Fault | None] = lambda _: None
    hold_s: float = 30.0
    computed: list[int] = field(default_factory=list)
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    def number(self) -> int:
        """Return the number of earlier requests."""
        with self.lock:
            self.asked += 1
            return self.asked - 1


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: FaultProxy, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy, self.root = proxy, upstream.removesuffix("/v1")
        self.http = httpx.Client(timeout=120, trust_env=False)

    def handle_error(self, *_: object) -> None:
        """Log nothing about closing connections, which the tests cause."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _ProxyServer

    def do_GET(self) -> None:
        """Forward a request about the server."""
        answer = self.server.http.get(self.server.root + self.path)
        self._reply(answer.status_code, answer.content)

    def do_POST(self) -> None:
        """Forward a request, and break its answer."""
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = proxy.faults(proxy.number())
        if fault is Fault.DROPPED:
            self._reset()
        elif fault is Fault.BUSY:
            self._reply(429, b"{}", {"Retry-After": "0"})
        else:
            headers = {"Content-Type": "application/json"}
            answer = self.server.http.post(self.server.root + self.path, content=body, headers=headers)
            if answer.status_code == httpx.codes.OK:
                with proxy.lock:
                    proxy.computed.append(answer.json()["usage"]["total_tokens"])
            self._spoil(fault, answer)

    def _spoil(self, fault: Fault | None, answer: httpx.Response) -> None:
        match fault:
            case Fault.SWALLOWED:
                self.server.proxy.closing.wait(self.server.proxy.hold_s)
                self._reset()
            case Fault.CUT:
                self._reply(answer.status_code, answer.content, keep=len(answer.content) // 2)
                time.sleep(0.05)
                self._reset()
            case Fault.ERROR:
                self._reply(500, b'{"error": {"message": "worker died"}}')
            case Fault.GARBLED:
                told: dict[str, Any] = {**answer.json(), "choices": "lost"}
                self._reply(200, json.dumps(told).encode())
            case _:
                self._reply(answer.status_code, answer.content)

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None, keep: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:keep])
        self.wfile.flush()

    def _reset(self) -> None:
        # With a linger time of 0 the kernel sends RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy in front of the server with the base URL ``upstream`` until the block ends."""
    proxy = FaultProxy()
    server = _ProxyServer(proxy, upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield proxy
    finally:
        proxy.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
        server.http.close()
