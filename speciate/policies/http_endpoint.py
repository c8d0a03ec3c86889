"""Exchange HTTP requests with one policy's endpoint, within limits on time, size and content coding."""

import threading
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl
from urllib.request import getproxies

import httpx

from speciate.domain.errors import ConfigurationError, PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.egress.network import ForbiddenAddressError
from speciate.egress.transport import GuardedTransport, refused_certificate, within
from speciate.policies.kind import ClientContext
from speciate.policies.numbers import read_number
from speciate.policies.openai_options import KEY_PLACE, OpenAICompatibleOptions
from speciate.policies.openai_wire import Reply, error_message
from speciate.policies.providers import provider_at
from speciate.policies.refusals import CREDIT_REMEDY, explain_refusal, key_remedy
from speciate.policies.usage import Billed
from speciate.ports.interruption import interrupted
from speciate.prompts.text import bounded, printable
from speciate.settings import secret_of

CHECK_TIMEOUT_S: Final = 5.0
"""Timeout of a request about the endpoint itself, such as its list of models."""

_UNREACHABLE: Final = "Check that the endpoint runs and is reachable"
OTHER_SERVICE: Final = (
    "Something answers there, but not an OpenAI-compatible endpoint: check base_url (it usually ends in /v1), and"
    " whether a proxy or a login page answers in its place."
)
_FAILING: Final = "The endpoint answers and fails: see its log or its status page, then resume the run."
_BUSY: Final = "It limits requests: resume the run later, or use --lanes 1 or a policy with --option concurrency=1."
_SLOW: Final = "Raise --timeout-s of the policy, lower its max_tokens or option concurrency, or use --lanes 1."
_SILENT: Final = "The endpoint takes connections and does not answer: see its log."
BROKEN: Final = "The answer is cut off or damaged: see the log of the endpoint, or of a proxy before it."
_LARGE: Final = "Lower max_tokens, or raise the policy's option max_response_bytes."
_CORRECT: Final = "Correct the policy's model, prompt format, sampling or options."

_MAX_MESSAGE: Final = 300
_TRANSIENT: Final = frozenset({408, 409, 429})
_BAD_REQUEST: Final = frozenset({400, 403, 413, 422, 451})
"""Statuses with which endpoints refuse what a request holds; 403 is moderation."""
_ERROR_BODY_BYTES: Final = 64 << 10
_COMPUTING_S: Final = 0.1
"""A connection that breaks sooner without an answer was idle for too long, or not taken: no model has computed."""
_IDLE_S: Final = 3.0  # below the 5 s after which uvicorn, and so vLLM, closes an idle connection
_CODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Accepted content codings, one at a time: a chunk then expands a thousandfold at most. Nested codings turn two
thousand bytes into gigabytes."""


@dataclass(eq=False)
class TransientError(Exception):
    """An attempt failed, and another one may succeed."""

    message: str
    _: KW_ONLY
    retry_after_s: float | None = None
    elsewhere: bool = False
    """True if another server may answer the next attempt."""
    sent: bool = False
    """True if the endpoint may have computed an answer that did not arrive."""
    lasting: bool = False
    """True if the same error twice in a row shows that no attempt will succeed."""
    remedy: str | None = None
    billed: Billed = field(default_factory=Billed)


class PromptRefusedError(Exception):
    """The endpoint refuses this prompt, and may accept another one; ``remedy`` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class HttpEndpoint:
    """The endpoint of a policy. Threads may share one instance. The key is read when needed and never stored."""

    def __init__(self, policy: Policy, url: str, context: ClientContext, options: OpenAICompatibleOptions) -> None:
        self._policy, self._context, self._options = policy, context, options
        base, _, query = url.partition("#")[0].partition("?")
        # Providers show addresses with the route, which is added to each request.
        self._url = base.rstrip("/").removesuffix("/completions").removesuffix("/chat")
        self._query = f"?{query}" if query else ""
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None

    @property
    def place(self) -> str:
        names = [name for name, _ in parse_qsl(self._query[1:], keep_blank_values=True)]
        try:
            base = str(httpx.URL(self._url).copy_with(username=None, password=None))
        except httpx.InvalidURL:
            return "an invalid base_url"
        return printable(f"{base}?{'&'.join(f'{name}=…' for name in names)}") if names else base

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def exchange(
        self, method: str, path: str, payload: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> Reply:
        """Send a request and return its response, whatever its status is.

        A path with a leading slash is relative to the server, any other to the base URL. Without a response raises
        ``TransientError``, or ``PolicyUnavailableError`` if no further attempt will get one.
        """
        timeout_s = timeout_s or self._policy.timeout_s
        began, answers = time.monotonic(), False
        deadline = began + timeout_s
        url = f"{self._url.removesuffix('/v1')}{path}" if path.startswith("/") else f"{self._url}/{path}{self._query}"
        headers = self._headers()
        if payload is not None and payload.get("stream"):
            headers["Accept"] = "text/event-stream, application/json"
        try:
            with (
                within(timeout_s, give_up=interrupted),
                self._client().stream(method, url, json=payload, headers=headers, timeout=timeout_s) as response,
            ):
                answers = True
                self._check_coding(response)
                good = response.status_code == HTTPStatus.OK
                limit = self._options.max_response_bytes if good else _ERROR_BODY_BYTES
                body = _read(response, deadline, timeout_s, limit, truncate=not good)
                kind, wait = response.headers.get("Content-Type", ""), response.headers.get("Retry-After")
                return Reply(response.status_code, body, self.cleaned(kind.lower(), 100), wait)
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise TransientError(f"no connection within {timeout_s:g} s", remedy=self._unreachable()) from None
        except httpx.TimeoutException as error:
            sent = not isinstance(error, httpx.WriteTimeout)
            remedy = _SILENT if payload is None else _SLOW
            raise TransientError(f"no answer within {timeout_s:g} s", sent=sent, remedy=remedy) from None
        except httpx.ConnectError as error:
            raise _lost(error, self._unreachable()) from None
        except httpx.TransportError as error:
            computed = answers or time.monotonic() - began > _COMPUTING_S
            raise _lost(error, BROKEN, sent=computed and not isinstance(error, httpx.WriteError)) from None
        except (ForbiddenAddressError, ConfigurationError) as error:
            raise self.unavailable(str(error).rstrip(".")) from None
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            remedy = "Correct base_url." if isinstance(error, httpx.InvalidURL) else OTHER_SERVICE
            raise self.unavailable(f"the exchange failed ({type(error).__name__})", remedy=remedy) from None

    def check(self, method: str, path: str, payload: Mapping[str, Any] | None) -> bytes:
        reply = self.exchange(method, path, payload, timeout_s=CHECK_TIMEOUT_S)
        if reply.status == HTTPStatus.OK:
            return reply.body
        error = self.refusal(reply, payload)
        if isinstance(error, PromptRefusedError):
            raise self.unavailable(str(error), remedy=error.remedy)
        raise error

    def query(self, method: str, path: str, payload: Mapping[str, Any] | None) -> tuple[int, bytes]:
        # A POST may take long, such as loading an adapter.
        timeout_s = CHECK_TIMEOUT_S if method == "GET" else self._policy.timeout_s
        reply = self.exchange(method, path, payload, timeout_s=timeout_s)
        return reply.status, reply.body

    def unavailable(self, message: str, *, remedy: str | None = None) -> PolicyUnavailableError:
        place = f"policy {self._policy.slug!r} at {self.place}"
        return PolicyUnavailableError(f"{place}: {message.rstrip('.')}.", remedy=remedy)

    def cleaned(self, text: str, limit: int = _MAX_MESSAGE) -> str:
        """Return a server's text for an error message: bounded, printable, and without the key if it repeats it."""
        key = self._key()
        text = printable(text.replace(key, "[key]") if key else text).strip()
        return bounded(text, limit).replace("\n", " ")

    def _client(self) -> httpx.Client:
        # Opened on first use, in the process that uses it: a connection does not survive a fork.
        with self._lock:
            if self._http is None:
                limits = httpx.Limits(
                    max_connections=None, max_keepalive_connections=self._options.concurrency, keepalive_expiry=_IDLE_S
                )
                guard = GuardedTransport(self._context.network, limits=limits)
                self._http = httpx.Client(timeout=self._policy.timeout_s, limits=limits, transport=guard)
            return self._http

    def _headers(self) -> dict[str, str]:
        # Uncompressed, so that the limit on a response's bytes also limits memory (see ``_CODINGS``).
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        key = self._key()
        own = {name: value.replace(KEY_PLACE, key or "") for name, value in self._options.headers.items()}
        if own != self._options.headers:
            if key is None:
                raise self.unavailable(
                    "the option headers refers to the policy's key, and it has none",
                    remedy="Register the policy again with --api-key-file.",
                )
        elif key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return headers | own

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

    def refusal(self, reply: Reply, payload: Mapping[str, Any] | None) -> Exception:
        """Return the ``TransientError``, ``PromptRefusedError`` or ``PolicyUnavailableError`` for a response."""
        status = reply.status
        message = f"it answered {status}: {self.cleaned(error_message(reply.body)) or 'nothing'}"
        unloaded = status == HTTPStatus.NOT_FOUND and self._options.adapter_path is not None
        named = explain_refusal(reply.body, payload, self._policy)
        out_of_credit = status == HTTPStatus.TOO_MANY_REQUESTS and named is not None and named.remedy == CREDIT_REMEDY
        out_of_credit = out_of_credit and b"retryDelay" not in reply.body  # Gemini words a limit per minute the same
        if ((status in _TRANSIENT or status >= 500) and not out_of_credit) or unloaded:
            # A proxy answers 5xx while the server behind it restarts; an adapter that was unloaded is loaded again.
            wait_s = 0.0 if unloaded else _retry_after_s(reply.retry_after)
            remedy = _BUSY if status == HTTPStatus.TOO_MANY_REQUESTS else _FAILING
            return TransientError(message, retry_after_s=wait_s, elsewhere=unloaded or status >= 500, remedy=remedy)
        if status not in _BAD_REQUEST or (status == HTTPStatus.FORBIDDEN and not (named and named.of_prompt)):
            credit = named is not None and named.remedy == CREDIT_REMEDY
            return self.unavailable(message, remedy=CREDIT_REMEDY if credit else self._remedy(status))
        if named is None or named.of_prompt:  # unknown words may be about the prompt
            return PromptRefusedError(message, named.remedy if named else _CORRECT)
        return self.unavailable(message, remedy=named.remedy)

    def _unreachable(self) -> str:
        provider = provider_at(self._url)
        started = f"; `{provider.start}` starts it" if provider is not None and provider.start else ""
        proxied = " Policies do not use the proxies of the environment." if getproxies().keys() - {"no"} else ""
        return f"{_UNREACHABLE}{started}.{proxied}"

    def _remedy(self, status: int) -> str:
        match status:
            case 401 | 403:
                return key_remedy(self._policy)
            case 402 | 429:
                return CREDIT_REMEDY
            case 404 if self._query:
                return "Check the policy's base_url (requests go to its path, then chat/completions and its query)."
            case 404:
                return "Check the policy's base_url (it usually ends in /v1) and model."
            case _ if 200 < status < 300:
                return OTHER_SERVICE
            case _ if 300 <= status < 400:
                return "Redirects are not followed, since the key would follow them: correct base_url."
            case _:
                return _CORRECT


def _retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, given as a number or a date; None if it is neither."""
    if header is None:
        return None
    if (seconds := read_number(header)) is None:
        try:
            date = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return None
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds)


def _lost(error: httpx.TransportError, remedy: str, *, sent: bool = False) -> TransientError:
    if (reason := refused_certificate(error)) is not None:
        remedy = reason
    return TransientError(f"the connection failed ({type(error).__name__})", elsewhere=True, sent=sent, remedy=remedy)


def _read(response: httpx.Response, deadline: float, timeout_s: float, limit: int, *, truncate: bool = False) -> bytes:
    """Read a body in chunks: an endpoint that sends slowly or endlessly must not hold a worker."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > limit:
            if truncate:
                break
            raise TransientError(f"the response is longer than {limit} bytes", sent=True, lasting=True, remedy=_LARGE)
        if time.monotonic() > deadline:
            raise TransientError(f"no complete answer within {timeout_s:g} s", sent=True, remedy=_SLOW)
    return bytes(body[:limit])
