"""Asks an endpoint that speaks the OpenAI protocol: vLLM, our embedded server, or a hosted one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final, Self

import httpx
import numpy as np
from pydantic import Field, JsonValue

from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.domain.values import Value
from speciate.outward.network import ForbiddenAddressError
from speciate.outward.transport import GuardedTransport
from speciate.policies.openai_wire import (
    Ceilings,
    GarbageError,
    ceilings_of,
    error_message,
    model_names,
    path_of,
    payload_of,
    read_answer,
)
from speciate.policies.own_options import own_options
from speciate.policies.retries import Backoff, asked_wait_s, worth_another_try
from speciate.policies.surroundings import ALONE, Surroundings
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.hostile import bounded, printable
from speciate.settings import secret_of

_MAX_MESSAGE: Final = 300
_ERROR_BODY_BYTES: Final = 64 << 10


class OpenAICompatibleOptions(Value):
    """Options of ``openai_compatible``.

    Attributes:
        max_retries: Attempts after the first one.
        backoff_s: Ceiling of the first wait between attempts; it doubles from attempt to attempt.
        longest_wait_s: Longest wait between attempts, also when the server asks for more.
        concurrency: Requests of one call that run side by side.
        chat_overhead_tokens: What the chat template may add to a prompt; only the ceiling of a request counts it.
        max_response_bytes: Longest response that is read.
        extra_body: Further fields of every request, such as vLLM's ``top_k`` or ``structured_outputs``.
    """

    max_retries: int = Field(default=4, ge=0, le=20)
    backoff_s: float = Field(default=0.5, ge=0, le=60)
    longest_wait_s: float = Field(default=30.0, ge=0, le=600)
    concurrency: int = Field(default=8, ge=1, le=256)
    chat_overhead_tokens: int = Field(default=512, ge=0, le=100_000)
    max_response_bytes: int = Field(default=64 << 20, ge=1 << 10, le=1 << 30)
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)


class _PassingError(Exception):
    """An attempt failed in a way that may pass; ``asked_s`` is how long the server wants to be left alone."""

    def __init__(self, message: str, asked_s: float | None = None) -> None:
        super().__init__(message)
        self.asked_s = asked_s


class _Call:
    """One call of ``sample``: the first failure ends it for all of its requests, and is what the caller hears."""

    cause: PolicyUnavailableError | None = None


class OpenAICompatible:
    """A policy behind an HTTP endpoint. One instance may be used from several threads.

    Args:
        policy: What to ask, and where. The key is looked up when it is needed and kept nowhere.
        surroundings: What may be asked, and who keeps keys.
        sleep: Waits between attempts; a test hands in its own.

    Raises:
        InvalidInputError: The policy lacks ``base_url`` or ``model``, or an option does not fit.
    """

    def __init__(
        self, policy: Policy, surroundings: Surroundings = ALONE, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if policy.base_url is None or policy.model is None:
            missing = "base_url" if policy.base_url is None else "model"
            raise InvalidInputError(
                f"policy {policy.slug!r} of kind {policy.kind!r} has no {missing}.",
                remedy="Give base_url (such as http://127.0.0.1:8000/v1) and model (a name that GET /models lists).",
            )
        self._policy = policy
        self._surroundings = surroundings
        self._model = policy.model
        self._options = own_options(policy, OpenAICompatibleOptions)
        self._url = policy.base_url.rstrip("/")
        self._backoff = Backoff(self._options.backoff_s, self._options.longest_wait_s)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return the bytes of the prompt, what a chat template may add, and the longest completions."""
        ceilings = self._ceilings(request)
        return ceilings.prompt + ceilings.completion

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order; they run side by side.

        Raises:
            PolicyUnavailableError: The endpoint refused, or did not answer usefully after bounded retries.
        """
        call = _Call()
        with ThreadPoolExecutor(max(1, min(len(requests), self._options.concurrency)), "policy") as pool:
            futures = [pool.submit(self._answer, request, call) for request in requests]
            wait(futures, return_when=FIRST_EXCEPTION)
            if call.cause is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        if call.cause is not None:
            answered = [f.result() for f in futures if not f.cancelled() and f.exception() is None]
            call.cause.spent_tokens = sum(result.tokens for result in answered)
            raise call.cause
        return [future.result() for future in futures]

    def ping(self) -> str:
        """Ask for the list of models.

        Raises:
            PolicyUnavailableError: There is no answer, or the model is not in the list.
        """
        try:
            names = model_names(self._exchange("GET", "models", None))
        except (_PassingError, GarbageError) as error:
            raise self._unavailable(str(error)) from None
        if self._model not in names:
            shown = printable(", ".join(names[:10])) or "no model"
            raise self._unavailable(
                f"it serves {bounded(shown, _MAX_MESSAGE)}, not {self._model!r}",
                remedy="Correct the policy's model, or serve it under that name.",
            )
        return f"{self._place()} serves {self._model}"

    def _answer(self, request: SampleRequest, call: _Call) -> SampleResult:
        try:
            return self._attempts(request, call)
        except PolicyUnavailableError as error:
            call.cause = call.cause or error
            raise

    def _attempts(self, request: SampleRequest, call: _Call) -> SampleResult:
        rng = np.random.default_rng(request.seed)
        attempts = 1 + self._options.max_retries
        problem = ""
        for attempt in range(attempts):
            if call.cause is not None:
                raise call.cause
            try:
                return self._attempt(request)
            except _PassingError as error:
                problem, asked_s = str(error), error.asked_s
            if attempt + 1 < attempts:
                self._sleep(self._backoff.wait_s(attempt, rng, asked_s))
        raise self._unavailable(f"{problem} (after {attempts} attempts)")

    def _attempt(self, request: SampleRequest) -> SampleResult:
        started = time.perf_counter()
        body = self._exchange(
            "POST", path_of(self._policy), payload_of(self._policy, request, self._options.extra_body)
        )
        try:
            return read_answer(body, self._policy, request.n, self._ceilings(request), time.perf_counter() - started)
        except GarbageError as error:
            raise _PassingError(str(error)) from None

    def _exchange(self, method: str, path: str, payload: Mapping[str, Any] | None) -> bytes:
        """Send one request and return the body of its answer.

        Raises:
            _PassingError: Another attempt may succeed.
            PolicyUnavailableError: None will.
        """
        deadline = time.monotonic() + self._policy.timeout_s
        headers = self._headers()
        try:
            with self._client().stream(method, f"{self._url}/{path}", json=payload, headers=headers) as response:
                if response.status_code == httpx.codes.OK:
                    return self._read(response, deadline, self._options.max_response_bytes)
                raise self._refusal(response, deadline)
        except httpx.TimeoutException:
            raise _PassingError(f"no answer within {self._policy.timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise _PassingError(f"the connection failed ({type(error).__name__})") from None
        except ForbiddenAddressError as error:
            raise self._unavailable(str(error).rstrip("."), remedy="") from None
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise self._unavailable(f"the exchange failed ({type(error).__name__})") from None

    def _refusal(self, response: httpx.Response, deadline: float) -> Exception:
        status = response.status_code
        said = error_message(self._read(response, deadline, _ERROR_BODY_BYTES, cut=True))
        message = f"it answered {status}: {self._cleaned(said)}"
        if worth_another_try(status):
            return _PassingError(message, asked_wait_s(response.headers.get("Retry-After")))
        return self._unavailable(message, remedy=self._remedy(status))

    def _read(self, response: httpx.Response, deadline: float, limit: int, *, cut: bool = False) -> bytes:
        """Read a body chunk by chunk: an endpoint that drips or never ends must not hold a worker."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > limit:
                if cut:
                    break
                raise _PassingError(f"the response is longer than {limit} bytes")
            if time.monotonic() > deadline:
                raise _PassingError(f"no complete answer within {self._policy.timeout_s:g} s")
        return bytes(body[:limit])

    def _client(self) -> httpx.Client:
        # Opened on first use, in the process that uses it: a connection does not survive a fork.
        with self._lock:
            if self._http is None:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._options.concurrency)
                network = self._surroundings.network
                guard = None if network is None else GuardedTransport(network, limits=limits)
                self._http = httpx.Client(timeout=self._policy.timeout_s, limits=limits, transport=guard)
            return self._http

    def _headers(self) -> dict[str, str]:
        # Uncompressed, so that the limit on a response's bytes is one on memory, too.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if (key := self._key()) is not None:
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str | None:
        if (kept := self._policy.api_key_id) is not None:
            if self._surroundings.key_of is None:
                raise self._unavailable("its key is kept by the service", remedy="It can be asked by its workers only.")
            return self._surroundings.key_of(kept)
        if (variable := self._policy.api_key_env) is None:
            return None
        key = (secret_of(variable) or "").strip()
        if not key or not key.isascii() or not key.isprintable():
            what = "is not set" if not key else "holds characters that a header cannot carry"
            raise self._unavailable(
                f"the environment variable {variable}, which holds its key, {what}",
                remedy=f"Set {variable} (or {variable}_FILE) where the workers start.",
            )
        return key

    def _cleaned(self, text: str) -> str:
        """Return a server's text for an error message: bounded, printable, and without the key if it repeats it."""
        key = self._key()
        return bounded(printable(text.replace(key, "[key]") if key else text).replace("\n", " ").strip(), _MAX_MESSAGE)

    def _remedy(self, status: int) -> str:
        match status:
            case 401 | 403:
                where = "Register the policy again with the right api_key"
                return f"Check the key in {self._policy.api_key_env}." if self._policy.api_key_env else f"{where}."
            case 404:
                return "Check the policy's base_url (it usually ends in /v1) and model."
            case _ if 300 <= status < 400:
                return "Redirects are not followed, since the key would follow them: correct base_url."
            case _:
                return "Correct the policy's model, prompt format, sampling or options."

    def _unavailable(self, message: str, *, remedy: str | None = None) -> PolicyUnavailableError:
        return PolicyUnavailableError(
            f"policy {self._policy.slug!r} at {self._place()}: {message}.",
            remedy="Check that the endpoint runs and is reachable." if remedy is None else remedy or None,
        )

    def _place(self) -> str:
        """Return the endpoint without a name and password that its address may hold."""
        try:
            return str(httpx.URL(self._url).copy_with(username=None, password=None, query=None))
        except httpx.InvalidURL:
            return "an invalid base_url"

    def _ceilings(self, request: SampleRequest) -> Ceilings:
        return ceilings_of(self._policy, request, self._options.chat_overhead_tokens)
