"""A proxy before a server of policies that spoils answers after they were computed, as networks and restarts do."""

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
    """What happens to one request."""

    SWALLOWED = "swallowed"
    """It is computed, and the answer never arrives."""
    CUT = "cut"
    """It is computed, and the connection is reset in the middle of the answer."""
    ERROR = "error"
    """It is computed, and 500 arrives."""
    GARBLED = "garbled"
    """It is computed, and arrives without its choices."""
    DROPPED = "dropped"
    """The connection ends before anything is computed."""
    BUSY = "busy"
    """Nothing is computed: 429, and to be asked again at once."""


@dataclass
class FaultProxy:
    """A proxy that is running.

    Attributes:
        url: Its base URL.
        faults: Given the number of requests before, returns what happens to one; None passes the answer on.
        hold_s: Seconds after which the connection of a swallowed answer ends.
        computed: Tokens that the server computed for every request, as it reported them.
    """

    url: str = ""
    faults: Callable[[int], Fault | None] = lambda _: None
    hold_s: float = 30.0
    computed: list[int] = field(default_factory=list)
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    def number(self) -> int:
        """Return how many requests came before this one."""
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
        """Keep quiet about connections that end: that is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _ProxyServer

    def do_GET(self) -> None:
        """Pass a question about the server on."""
        answer = self.server.http.get(self.server.root + self.path)
        self._reply(answer.status_code, answer.content)

    def do_POST(self) -> None:
        """Pass a request on, and spoil its answer."""
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
                told: dict[str, Any] = {**answer.json(), "choices": []}
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
        # Closed with nothing lingering, the kernel sends RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Stand before the server with the base URL ``upstream`` until the block ends."""
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
