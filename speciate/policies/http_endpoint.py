"""Exchange HTTP requests with one policy's endpoint, within limits on time, size and content coding."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.egress.network import ForbiddenAddressError
from speciate.egress.transport import GuardedTransport, within
from speciate.policies.kind import ClientContext
from speciate.policies.openai_wire import error_message
from speciate.policies.refusals import explain_refusal
from speciate.policies.retries import is_transient, retry_after_s
from speciate.prompts.text import bounded, printable
from speciate.settings import secret_of

CHECK_TIMEOUT_S: Final = 5.0
"""Timeout of a request about the endpoint itself, such as its list of models."""

_MAX_MESSAGE: Final = 300
_BAD_REQUEST: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_ERROR_BODY_BYTES: Final = 64 << 10
_IDLE_S: Final = 3.0  # below the 5 s after which uvicorn, and so vLLM, closes an idle connection
_CODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Accepted content codings, one at a time: a chunk then expands a thousandfold at most. Nested codings turn two
thousand bytes into gigabytes."""


class TransientError(Exception):
    """An attempt failed, and another one may succeed.

    Attributes:
        retry_after_s: Wait that the server requested.
        elsewhere: True if another server may answer the next attempt.
        tokens: Tokens that the failed attempt took, as reported by the endpoint.
        timed_out: True if the answer took too long.
    """

    def __init__(
        self,
        message: str,
        retry_after_s: float | None = None,
        *,
        elsewhere: bool = False,
        tokens: int = 0,
        timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.elsewhere = elsewhere
        self.tokens = tokens
        self.timed_out = timed_out


class HttpEndpoint:
    """The endpoint of a policy. Threads may share one instance.

    Args:
        policy: The registration; its key is read when needed and never stored.
        url: The policy's ``base_url``.
        context: Networks and keys that may be used.
        connections: Connections to keep open.
        max_response_bytes: Largest response to read.
        loads_adapter: True if a 404 may mean that the policy's adapter has to be loaded again.
    """

    def __init__(
        self,
        policy: Policy,
        url: str,
        context: ClientContext,
        *,
        connections: int,
        max_response_bytes: int,
        loads_adapter: bool,
    ) -> None:
        self._policy, self._context = policy, context
        self._url = url.rstrip("/")
        self._connections, self._max_response_bytes = connections, max_response_bytes
        self._loads_adapter = loads_adapter
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None

    @property
    def place(self) -> str:
        """The endpoint's URL without a user name and password."""
        try:
            return str(httpx.URL(self._url).copy_with(username=None, password=None, query=None))
        except httpx.InvalidURL:
            return "an invalid base_url"

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def exchange(
        self, method: str, path: str, payload: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> bytes:
        """Send a request and return the body of its response.

        Raises:
            TransientError: Another attempt may succeed.
            PolicyUnavailableError: No attempt will.
        """
        response, body = self._send(method, path, payload, timeout_s or self._policy.timeout_s)
        if response.status_code == HTTPStatus.OK:
            return body
        raise self._refusal(response, body, payload)

    def check(self, method: str, path: str, payload: Mapping[str, Any] | None) -> bytes:
        """Send a short request about the endpoint; raises as ``exchange`` does."""
        return self.exchange(method, path, payload, timeout_s=CHECK_TIMEOUT_S)

    def query(self, method: str, path: str, payload: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Send a request about the endpoint; return status and body, whatever the status is."""
        # A POST may take long, such as loading an adapter.
        timeout_s = CHECK_TIMEOUT_S if method == "GET" else self._policy.timeout_s
        response, body = self._send(method, path, payload, timeout_s)
        return response.status_code, body

    def metrics(self) -> str | None:
        """Return the endpoint's metrics, empty if it has none; None if it does not answer."""
        try:
            status, body = self.query("GET", "/metrics", None)
        except (TransientError, PolicyUnavailableError):
            return None
        return body.decode("utf-8", "replace") if status == HTTPStatus.OK else ""

    def unavailable(self, message: str, *, remedy: str | None = None) -> PolicyUnavailableError:
        """Return the error that names the policy and its endpoint."""
        return PolicyUnavailableError(
            f"policy {self._policy.slug!r} at {self.place}: {message.rstrip('.')}.",
            remedy="Check that the endpoint runs and is reachable." if remedy is None else remedy or None,
        )

    def cleaned(self, text: str, limit: int = _MAX_MESSAGE) -> str:
        """Return a server's text for an error message: bounded, printable, and without the key if it repeats it."""
        key = self._key()
        return bounded(printable(text.replace(key, "[key]") if key else text).replace("\n", " ").strip(), limit)

    def _send(
        self, method: str, path: str, payload: Mapping[str, Any] | None, timeout_s: float
    ) -> tuple[httpx.Response, bytes]:
        """Send a request. A path with a leading slash is relative to the server, any other to the base URL.

        Raises:
            TransientError: There is no response; another attempt may get one.
            PolicyUnavailableError: No attempt will.
        """
        deadline = time.monotonic() + timeout_s
        url = f"{self._url.removesuffix('/v1')}{path}" if path.startswith("/") else f"{self._url}/{path}"
        headers = self._headers()
        try:
            with (
                within(timeout_s),
                self._client().stream(method, url, json=payload, headers=headers, timeout=timeout_s) as response,
            ):
                self._check_coding(response)
                if response.status_code == HTTPStatus.OK:
                    return response, _read(response, deadline, timeout_s, self._max_response_bytes)
                return response, _read(response, deadline, timeout_s, _ERROR_BODY_BYTES, truncate=True)
        except httpx.TimeoutException:
            raise TransientError(f"no answer within {timeout_s:g} s", timed_out=True) from None
        except httpx.TransportError as error:
            raise TransientError(f"the connection failed ({type(error).__name__})", elsewhere=True) from None
        except ForbiddenAddressError as error:
            raise self.unavailable(str(error).rstrip("."), remedy="") from None
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise self.unavailable(f"the exchange failed ({type(error).__name__})") from None

    def _client(self) -> httpx.Client:
        # Opened on first use, in the process that uses it: a connection does not survive a fork.
        with self._lock:
            if self._http is None:
                limits = httpx.Limits(
                    max_connections=None, max_keepalive_connections=self._connections, keepalive_expiry=_IDLE_S
                )
                network = self._context.network
                guard = None if network is None else GuardedTransport(network, limits=limits)
                self._http = httpx.Client(timeout=self._policy.timeout_s, limits=limits, transport=guard)
            return self._http

    def _headers(self) -> dict[str, str]:
        # Uncompressed, so that the limit on a response's bytes also limits memory (see ``_CODINGS``).
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if (key := self._key()) is not None:
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str | None:
        if (key_id := self._policy.api_key_id) is not None:
            if self._context.key_of is None:
                raise self.unavailable("the service stores its key", remedy="Only the service's workers can use it.")
            return self._context.key_of(key_id)
        if (variable := self._policy.api_key_env) is None:
            return None
        key = (secret_of(variable) or "").strip()
        if not key or not key.isascii() or not key.isprintable():
            what = "is not set" if not key else "holds characters that a header cannot carry"
            raise self.unavailable(
                f"the environment variable {variable}, which holds its key, {what}",
                remedy=f"Set {variable} (or {variable}_FILE) in the environment of the workers.",
            )
        return key

    def _check_coding(self, response: httpx.Response) -> None:
        coding = response.headers.get("Content-Encoding", "").lower()
        if coding not in _CODINGS:
            raise self.unavailable(
                f"it answered with content coding {self.cleaned(coding)!r}, which was not requested",
                remedy="Have the endpoint, or the proxy in front of it, answer uncompressed.",
            )

    def _refusal(self, response: httpx.Response, body: bytes, payload: Mapping[str, Any] | None) -> Exception:
        status = response.status_code
        message = f"it answered {status}: {self.cleaned(error_message(body))}"
        unloaded = status == HTTPStatus.NOT_FOUND and self._loads_adapter
        if is_transient(status) or unloaded:
            # A proxy answers 5xx while the server behind it restarts; an adapter that was unloaded is loaded again.
            wait_s = 0.0 if unloaded else retry_after_s(response.headers.get("Retry-After"))
            return TransientError(message, wait_s, elsewhere=unloaded or status >= 500)
        named = explain_refusal(body, payload, self._policy) if status in _BAD_REQUEST else None
        return self.unavailable(message, remedy=named or self._remedy(status))

    def _remedy(self, status: int) -> str:
        match status:
            case 401 | 403 if self._policy.api_key_env:
                return f"Check the key in {self._policy.api_key_env}."
            case 401 | 403:
                return "Register the policy again with the right api_key."
            case 404:
                return "Check the policy's base_url (it usually ends in /v1) and model."
            case _ if 300 <= status < 400:
                return "Redirects are not followed, since the key would follow them: correct base_url."
            case _:
                return "Correct the policy's model, prompt format, sampling or options."


def _read(response: httpx.Response, deadline: float, timeout_s: float, limit: int, *, truncate: bool = False) -> bytes:
    """Read a body in chunks: an endpoint that sends slowly or endlessly must not hold a worker."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > limit:
            if truncate:
                break
            raise TransientError(f"the response is longer than {limit} bytes")
        if time.monotonic() > deadline:
            raise TransientError(f"no complete answer within {timeout_s:g} s")
    return bytes(body[:limit])
