"""Asking an address that was looked at before: the one that was checked is the one that is connected to.

A name may lead elsewhere from one look to the next (DNS rebinding). So a name is resolved here, its addresses checked,
and the request sent to one of those, the first where somebody listens; the name goes along in ``Host`` and, with TLS,
as the one that the certificate has to be for. No proxy stands between, since it would resolve the name itself.
Redirects are not followed: ``httpx`` does so only when it is told to, and nobody here tells it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any, Final

import httpx

from speciate.egress.deadline import DeadlineBackend
from speciate.egress.network import AllowedNetworks, ForbiddenAddressError, Resolve, resolve

KEPT_S: Final = 30.0
"""Seconds for which a checked address is used again without asking for the name."""


class GuardedTransport(httpx.BaseTransport):
    """Sends requests to allowed addresses only, in the time that ``within`` gives. May be used from several threads.

    Args:
        network: What is allowed.
        resolve: Looks names up; a test hands in its own.
        options: Of ``httpx.HTTPTransport``.
    """

    def __init__(self, network: AllowedNetworks, *, resolve: Resolve = resolve, **options: Any) -> None:
        self._addresses = _Addresses(network, resolve)
        self._transport = httpx.HTTPTransport(trust_env=False, **options)
        # httpx has no other way to hand one in.
        self._transport._pool._network_backend = DeadlineBackend()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to a checked address of its host.

        Raises:
            ForbiddenAddressError: It has none that is allowed.
            httpx.TransportError: It has none at all, or does not answer.
        """
        *others, last = self._addresses.of(request)
        for address in others:
            with suppress(httpx.ConnectError):  # nobody listens there; nothing was sent
                return self._transport.handle_request(_bound(request, address))
        try:
            return self._transport.handle_request(_bound(request, last))
        except httpx.ConnectError:
            self._addresses.forget(request)
            raise

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class AsyncGuardedTransport(httpx.AsyncBaseTransport):
    """The same for one asynchronous request or a few; names are looked up in a thread."""

    def __init__(self, network: AllowedNetworks, *, resolve: Resolve = resolve) -> None:
        self._addresses = _Addresses(network, resolve)
        self._transport = httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to a checked address of its host; raises as ``GuardedTransport`` does."""
        *others, last = await asyncio.to_thread(self._addresses.of, request)
        for address in others:
            with suppress(httpx.ConnectError):
                return await self._transport.handle_async_request(_bound(request, address))
        return await self._transport.handle_async_request(_bound(request, last))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


class _Addresses:
    """Checked addresses of hosts."""

    def __init__(self, network: AllowedNetworks, resolve: Resolve) -> None:
        self._network = network
        self._resolve = resolve
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], tuple[list[str], float]] = {}

    def of(self, request: httpx.Request) -> list[str]:
        """Return the addresses that a request may go to, at least one, in the order in which they are tried."""
        place, now = _place(request.url), time.monotonic()
        with self._lock:
            addresses, until = self._known.get(place, ([], 0.0))
        if now < until:
            return addresses
        try:
            addresses = self._network.addresses(*place, self._resolve)
        except OSError:
            raise httpx.ConnectError(f"the name {place[0]!r} has no address", request=request) from None
        with self._lock:
            self._known[place] = addresses, now + KEPT_S
        return addresses

    def forget(self, request: httpx.Request) -> None:
        """Have the name looked up again: nobody answered at its addresses."""
        with self._lock:
            self._known.pop(_place(request.url), None)


def _bound(request: httpx.Request, address: str) -> httpx.Request:
    # The Host header was set from the name before; the certificate is checked against the name, too.
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": _place(request.url)[0]},
    )


def check_url(url: str, network: AllowedNetworks, *, resolve: Resolve = resolve) -> str | None:
    """Return what is wrong with an address that a user hands in, or None.

    A name that leads nowhere yet is not wrong: it is looked at again whenever it is asked.
    """
    try:
        parsed = httpx.URL(url)
        host, port = _place(parsed)
    except (httpx.InvalidURL, UnicodeError):
        host, port = "", 0
    if not host or parsed.scheme not in {"http", "https"} or not 0 < port < 1 << 16:
        return "is no address: expected http://HOST/PATH or https://HOST/PATH"
    if parsed.userinfo:
        return "holds a name or password, which everybody could read: expected an address without"
    try:
        network.addresses(host, port, resolve)
    except OSError:
        return None
    except ForbiddenAddressError as error:
        return str(error)
    return None


def _place(url: httpx.URL) -> tuple[str, int]:
    """Return the host as it goes over the wire, without brackets, and the port."""
    host = url.raw_host.decode("ascii").strip("[]")
    return host, url.port or (443 if url.scheme == "https" else 80)
