"""Connect to the very address that was checked, so that DNS rebinding cannot redirect a request.

The transports resolve the host name, check its addresses, and connect to the first allowed one that accepts. ``Host``
and the TLS server name keep the host name, so the certificate is verified against it. Proxies are disabled, since a
proxy would resolve the name again. ``httpx`` does not follow redirects by default.

``within`` limits a whole request by one deadline: connecting, sending, and receiving all of the response. ``httpx``
limits each step, and every read of the headers is a step: a server that sends one byte a second could hold the caller
indefinitely.
"""

import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import httpcore
import httpx

from speciate.domain.errors import ConfigurationError
from speciate.egress.network import AllowedNetworks, ForbiddenAddressError, Resolve, resolve

_PIECE_BYTES: Final = 16 << 10
_LOOK_S: Final = 0.2
"""Seconds between two looks whether a read is still wanted."""
_own: Final = threading.local()


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context of all connections, with the authorities of the environment. Reading them takes 20 ms."""
    file, folder = (os.environ.get(f"SSL_CERT_{each}") or None for each in ("FILE", "DIR"))
    context = httpx.create_ssl_context(trust_env=False)
    try:
        if file or folder:
            context.load_verify_locations(file, folder)
    except OSError as error:
        raise ConfigurationError(f"a file in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}.") from None
    return context


def refused_certificate(error: httpx.TransportError) -> str | None:
    """Return why a server's certificate was refused, and the remedy; None for another error."""
    _, refused, text = str(error).partition("CERTIFICATE_VERIFY_FAILED")
    reason = text.partition("failed: ")[2].partition(" (_ssl")[0]
    own = "an authority of your own is named by its file in SSL_CERT_FILE"
    return f"Its certificate is refused ({reason}); {own}." if refused else None


class GuardedTransport(httpx.BaseTransport):
    """Transport to allowed addresses only, within the deadline of ``within``. Threads may share it."""

    def __init__(self, network: AllowedNetworks, *, resolve: Resolve = resolve, **options: Any) -> None:
        self._network, self._resolve = network, resolve
        self._transport = httpx.HTTPTransport(**{"verify": tls_context(), **options, "trust_env": False})
        # httpx has no public way to set the network backend.
        self._transport._pool._network_backend = DeadlineBackend()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            *others, last = self._network.addresses(*_place(request.url), self._resolve)
        except OSError:
            raise httpx.ConnectError(f"the host {request.url.host!r} has no address", request=request) from None
        for address in others:
            with suppress(httpx.ConnectError):  # connection refused, so nothing was sent
                return self._transport.handle_request(_bound(request, address))
        return self._transport.handle_request(_bound(request, last))

    def close(self) -> None:
        self._transport.close()


def _bound(request: httpx.Request, address: str) -> httpx.Request:
    # The Host header already holds the name; the certificate is verified against the name, too.
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": _place(request.url)[0]},
    )


def check_url(url: str, network: AllowedNetworks, *, resolve: Resolve = resolve) -> str | None:
    """Return the error in a URL that a user submits, or None.

    A name that does not resolve is accepted: it is checked again at every request.
    """
    try:
        parsed = httpx.URL(url)
        host, port = _place(parsed)
    except (httpx.InvalidURL, UnicodeError):
        host, port = "", 0
    if not host or parsed.scheme not in {"http", "https"} or not 0 < port < 1 << 16:
        return "invalid URL: expected http://HOST/PATH or https://HOST/PATH"
    if parsed.userinfo:
        return "contains a user name or password, which other users could read: expected a URL without them"
    try:
        network.addresses(host, port, resolve)
    except OSError:
        return None
    except ForbiddenAddressError as error:
        return str(error)
    return None


def _place(url: httpx.URL) -> tuple[str, int]:
    """Return the ASCII host name without brackets, and the port."""
    host = url.raw_host.decode("ascii").strip("[]")
    default = 443 if url.scheme == "https" else 80
    return host, default if url.port is None else url.port


@contextmanager
def within(seconds: float, *, give_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Limit all requests of this thread in the block that use ``DeadlineBackend`` to this many seconds in total.

    A read fails soon after ``give_up`` returns True.
    """
    _own.until, _own.give_up = time.monotonic() + seconds, give_up
    try:
        yield
    finally:
        _own.until, _own.give_up = math.inf, None


def _left(timeout_s: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    left = getattr(_own, "until", math.inf) - time.monotonic()
    if left <= 0:
        raise error("the deadline of the request has passed")
    if math.isinf(left):
        return timeout_s
    return left if timeout_s is None else min(left, timeout_s)


class DeadlineBackend(httpcore.SyncBackend):
    """Network backend whose connections keep the deadline of the thread that uses them."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **options: Any
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(super().connect_tcp(host, port, left, *args, **options))


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if (give_up := getattr(_own, "give_up", None)) is None:
            return self._stream.read(max_bytes, timeout)
        while not give_up():
            left = _left(timeout, httpcore.ReadTimeout) or _LOOK_S
            with suppress(httpcore.ReadTimeout):
                return self._stream.read(max_bytes, min(left, _LOOK_S))
        raise httpcore.ReadError("the answer is no longer wanted")

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: a server may also receive slowly.
        for at in range(0, len(buffer), _PIECE_BYTES):
            self._stream.write(buffer[at : at + _PIECE_BYTES], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _DeadlineStream(
            self._stream.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout))
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
