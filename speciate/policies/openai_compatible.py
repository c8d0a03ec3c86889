"""Asks an endpoint that speaks the OpenAI protocol: vLLM, our embedded server, or a hosted one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, Self

import httpx
import numpy as np
from pydantic import Field, JsonValue

from speciate.domain.errors import FieldError, InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import DigestFrom, Policy, ServedWeights
from speciate.domain.values import Value
from speciate.egress.deadline import within
from speciate.egress.network import ForbiddenAddressError
from speciate.egress.transport import GuardedTransport
from speciate.policies.endpoint_check import EndpointCheck
from speciate.policies.guides import Guide, check_guide, constraint_of
from speciate.policies.identity import EndpointMismatchError, WeightsIdentity
from speciate.policies.kind import STANDALONE, ClientContext, PolicyKind, client_options
from speciate.policies.openai_wire import (
    MalformedResponseError,
    TokenCeilings,
    WeightsMismatchError,
    ceilings_of,
    error_message,
    path_of,
    payload_of,
    read_answer,
    reported_tokens,
)
from speciate.policies.queueing import QueueGate
from speciate.policies.retries import Backoff, asked_wait_s, worth_another_try
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.text import bounded, printable
from speciate.settings import secret_of

_MAX_MESSAGE: Final = 300
_ERROR_BODY_BYTES: Final = 64 << 10
_LOOK_S: Final = 5.0
"""Seconds that an answer about the endpoint itself may take."""
_LOOK_AGAIN_S: Final = 30.0
_CODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Content codings that are read, one at a time: a chunk grows a thousandfold at most. In two, one inside the other, two
thousand bytes make gigabytes."""


class OpenAICompatibleOptions(Value):
    """Options of ``openai_compatible``.

    Attributes:
        max_retries: Attempts after the first one.
        backoff_s: Ceiling of the first wait between attempts; it doubles from attempt to attempt.
        longest_wait_s: Longest wait between attempts, also when the server asks for more.
        concurrency: Requests of one call that run side by side.
        chat_overhead_tokens: What the chat template may add to a prompt; only the ceiling of a request counts it.
        max_response_bytes: Longest response that is read.
        extra_body: Further fields of every request, such as vLLM's ``top_k``.
        check: Whether the list of models is read before a run; some gateways have none.
        base_model: For an adapter, the model that it belongs to and that must be served.
        adapter_path: Where the server finds the adapter ``model``, so that it is loaded when it is not there; None for
            one that the server was started with.
        guide: What the model may write: ``diff`` for SEARCH/REPLACE blocks, or a regex or grammar.
        max_waiting: Most sequences that may wait at the endpoint when more are sent, where its metrics say how many do.
        longest_queue_s: Longest wait for that.
    """

    max_retries: int = Field(default=4, ge=0, le=20)
    backoff_s: float = Field(default=0.5, ge=0, le=60)
    longest_wait_s: float = Field(default=30.0, ge=0, le=600)
    concurrency: int = Field(default=8, ge=1, le=256)
    chat_overhead_tokens: int = Field(default=512, ge=0, le=100_000)
    max_response_bytes: int = Field(default=64 << 20, ge=1 << 10, le=1 << 30)
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    check: bool = True
    base_model: str | None = Field(default=None, min_length=1, max_length=500)
    adapter_path: str | None = Field(default=None, min_length=1, max_length=4000)
    guide: Guide | None = None
    max_waiting: int = Field(default=256, ge=1, le=1_000_000)
    longest_queue_s: float = Field(default=600.0, gt=0, le=86_400)


class TransientError(Exception):
    """An attempt failed in a way that may pass.

    Attributes:
        asked_s: How long the server wants to be left alone.
        elsewhere: Whether another server may answer the next attempt.
        tokens: What the failed attempt took, as far as the endpoint said so.
    """

    def __init__(self, message: str, asked_s: float | None = None, *, elsewhere: bool = False, tokens: int = 0) -> None:
        super().__init__(message)
        self.asked_s = asked_s
        self.elsewhere = elsewhere
        self.tokens = tokens


class _SampleCall:
    """One call of ``sample``: the first failure ends it for all of its requests, and is what the caller hears."""

    cause: PolicyUnavailableError | None = None


class OpenAICompatible:
    """A policy behind an HTTP endpoint. One instance may be used from several threads.

    Args:
        policy: What to ask, and where. The key is looked up when it is needed and kept nowhere.
        context: What may be asked, and who keeps keys.
        sleep: Waits between attempts; a test hands in its own.

    Raises:
        InvalidInputError: The policy lacks ``base_url`` or ``model``, or an option does not fit.
    """

    def __init__(
        self, policy: Policy, context: ClientContext = STANDALONE, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if policy.base_url is None or policy.model is None:
            missing = (
                FieldError("expected an address such as http://127.0.0.1:8000/v1", where="base_url")
                if policy.base_url is None
                else FieldError("expected a name that GET /models lists", where="model")
            )
            raise InvalidInputError(
                f"policy {policy.slug!r} of kind {policy.kind!r} has no {missing}.", flaws=(missing,)
            )
        self._policy = policy
        self._context = context
        self._model = policy.model
        self._options = client_options(policy, OpenAICompatibleOptions)
        self._url = policy.base_url.rstrip("/")
        self._backoff = Backoff(self._options.backoff_s, self._options.longest_wait_s)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        check_guide(policy, self._options.guide)
        self._gate = QueueGate(self._metrics, self._options.max_waiting)
        self._check = EndpointCheck(
            policy,
            adapter_path=self._options.adapter_path,
            base_model=self._options.base_model,
            guide=self._options.guide,
            exchange=partial(self._exchange, timeout_s=_LOOK_S),
            send=self._send_and_read,
        )
        self._pinned = bool(policy.served or policy.checkpoint_digest or self._options.adapter_path)
        self._looking = threading.Lock()
        self._due_at = 0.0 if self._pinned else math.inf

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
        call = _SampleCall()
        with ThreadPoolExecutor(max(1, min(len(requests), self._options.concurrency)), "policy") as pool:
            futures = [pool.submit(self._answer, request, call) for request in requests]
            wait(futures, return_when=FIRST_EXCEPTION)
            if call.cause is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        if call.cause is not None:
            done = [f for f in futures if not f.cancelled()]
            failures = {error for f in done if isinstance(error := f.exception(), PolicyUnavailableError)}
            call.cause.spent_tokens = sum(error.spent_tokens for error in failures) + sum(
                f.result().tokens for f in done if f.exception() is None
            )
            raise call.cause
        return [future.result() for future in futures]

    def ping(self) -> str:
        """Look at the endpoint as before a run.

        Raises:
            PolicyUnavailableError: There is no answer, the model is not there, or it is not what was registered.
        """
        identity = self._looked()
        if identity is None:
            return f"{self._place()} is not checked"
        known = "" if identity.digest is None else f", weights {identity.digest[:12]}"
        if identity.served.digest_from is DigestFrom.DECLARED:
            known += " as declared"
        return f"{self._place()} serves {self._model}{known}"

    def identify(self) -> Policy:
        """Return the policy with the weights that the endpoint serves, so far as they can be known.

        Raises:
            PolicyUnavailableError: As for ``ping``.
        """
        identity = self._looked()
        if identity is None:
            return self._policy
        served = identity.served if identity.served != ServedWeights() else None
        return self._policy.model_copy(update={"checkpoint_digest": identity.digest, "served": served})

    def revalidate(self) -> None:
        """Look at the endpoint again before the next answer, as a run that begins has it done."""
        self._due_at = 0.0

    def _looked(self) -> WeightsIdentity | None:
        if not self._options.check:
            return None
        try:
            return self._look()
        except TransientError as error:
            raise self._unavailable(str(error)) from None

    def _look(self) -> WeightsIdentity:
        """Look now.

        Raises:
            TransientError: Another attempt may succeed.
            PolicyUnavailableError: None will.
        """
        try:
            identity = self._check.look()
        except MalformedResponseError as error:
            raise TransientError(str(error)) from None
        except EndpointMismatchError as error:
            raise self._unavailable(self._cleaned(str(error), 1000), remedy=error.remedy) from None
        self._due_at = time.monotonic() + _LOOK_AGAIN_S if self._pinned else math.inf
        return identity

    def _look_when_due(self) -> None:
        """Look after a while, and whenever another server may have taken the endpoint's place."""
        if self._options.check and time.monotonic() >= self._due_at:
            with self._looking:
                if time.monotonic() >= self._due_at:
                    self._look()

    def _answer(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        try:
            return self._attempts(request, call)
        except PolicyUnavailableError as error:
            call.cause = call.cause or error
            raise

    def _attempts(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        rng = np.random.default_rng(request.seed)
        attempts = 1 + self._options.max_retries
        problem, tokens = "", 0
        for attempt in range(attempts):
            if call.cause is not None:
                raise call.cause
            try:
                return self._attempt(request, call)
            except TransientError as error:
                problem, asked_s = str(error), error.asked_s
                tokens = max(tokens, error.tokens)
                if error.elsewhere and self._pinned:
                    self.revalidate()
            if attempt + 1 < attempts:
                self._sleep(self._backoff.wait_s(attempt, rng, asked_s))
        failure = self._unavailable(f"{problem} (after {attempts} attempts)")
        # A request is charged once: for the answer that is used or, where none was, for the dearest that was reported.
        failure.spent_tokens = tokens
        raise failure

    def _attempt(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        self._look_when_due()
        longest_s = self._options.longest_queue_s
        with self._gate.passage(request.n, give_up=lambda: call.cause is not None, longest_s=longest_s) as passed:
            if not passed:
                raise call.cause or self._unavailable(
                    f"more than {self._options.max_waiting} sequences waited there for {longest_s:g} s",
                    remedy="Give it more machines, or run less at once; the option max_waiting is the bound.",
                )
            return self._asked(request)

    def _asked(self, request: SampleRequest) -> SampleResult:
        started = time.perf_counter()
        extra = {**self._options.extra_body, **constraint_of(self._options.guide, request)}
        body = self._exchange("POST", path_of(self._policy), payload_of(self._policy, request, extra))
        ceilings = self._ceilings(request)
        try:
            return read_answer(body, self._policy, request.n, ceilings, time.perf_counter() - started)
        except MalformedResponseError as error:
            raise TransientError(str(error), tokens=reported_tokens(body, ceilings)) from None
        except WeightsMismatchError as error:
            raise self._unavailable(
                str(error), remedy="Serve what was registered, or register what is served as the next version."
            ) from None

    def _metrics(self) -> str | None:
        """Return what the endpoint measures of itself, nothing where it does not; None where there is no answer now."""
        try:
            status, body = self._send_and_read("GET", "/metrics", None)
        except (TransientError, PolicyUnavailableError):
            return None
        return body.decode("utf-8", "replace") if status == httpx.codes.OK else ""

    def _exchange(
        self, method: str, path: str, payload: Mapping[str, Any] | None, *, timeout_s: float | None = None
    ) -> bytes:
        """Send one request and return the body of its answer.

        Raises:
            TransientError: Another attempt may succeed.
            PolicyUnavailableError: None will.
        """
        response, body = self._send(method, path, payload, timeout_s or self._policy.timeout_s)
        if response.status_code == httpx.codes.OK:
            return body
        raise self._refusal(response, body)

    def _send_and_read(self, method: str, path: str, payload: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Send one request about the endpoint itself and return status and body, whatever they are."""
        # What is posted may be large work, such as loading an adapter.
        timeout_s = _LOOK_S if method == "GET" else self._policy.timeout_s
        response, body = self._send(method, path, payload, timeout_s)
        return response.status_code, body

    def _send(
        self, method: str, path: str, payload: Mapping[str, Any] | None, timeout_s: float
    ) -> tuple[httpx.Response, bytes]:
        """Send one request; a path that begins with a slash is one of the server, any other one of the protocol.

        Raises:
            TransientError: There is no answer; another attempt may get one.
            PolicyUnavailableError: None will.
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
                if response.status_code == httpx.codes.OK:
                    return response, self._read(response, deadline, timeout_s, self._options.max_response_bytes)
                return response, self._read(response, deadline, timeout_s, _ERROR_BODY_BYTES, cut=True)
        except httpx.TimeoutException:
            raise TransientError(f"no answer within {timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise TransientError(f"the connection failed ({type(error).__name__})", elsewhere=True) from None
        except ForbiddenAddressError as error:
            raise self._unavailable(str(error).rstrip("."), remedy="") from None
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise self._unavailable(f"the exchange failed ({type(error).__name__})") from None

    def _refusal(self, response: httpx.Response, body: bytes) -> Exception:
        status = response.status_code
        message = f"it answered {status}: {self._cleaned(error_message(body))}"
        gone = status == httpx.codes.NOT_FOUND and self._options.adapter_path is not None
        if worth_another_try(status) or gone:
            # A proxy answers 5xx while the server behind it starts anew; an adapter that is gone is loaded again.
            asked_s = 0.0 if gone else asked_wait_s(response.headers.get("Retry-After"))
            return TransientError(message, asked_s, elsewhere=gone or status >= 500)
        return self._unavailable(message, remedy=self._remedy(status))

    def _check_coding(self, response: httpx.Response) -> None:
        coding = response.headers.get("Content-Encoding", "").lower()
        if coding not in _CODINGS:
            raise self._unavailable(
                f"it answered in the coding {self._cleaned(coding)!r}, and was asked for none",
                remedy="Let the endpoint, or the proxy before it, answer uncompressed.",
            )

    def _read(
        self, response: httpx.Response, deadline: float, timeout_s: float, limit: int, *, cut: bool = False
    ) -> bytes:
        """Read a body chunk by chunk: an endpoint that drips or never ends must not hold a worker."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > limit:
                if cut:
                    break
                raise TransientError(f"the response is longer than {limit} bytes")
            if time.monotonic() > deadline:
                raise TransientError(f"no complete answer within {timeout_s:g} s")
        return bytes(body[:limit])

    def _client(self) -> httpx.Client:
        # Opened on first use, in the process that uses it: a connection does not survive a fork.
        with self._lock:
            if self._http is None:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._options.concurrency)
                network = self._context.network
                guard = None if network is None else GuardedTransport(network, limits=limits)
                self._http = httpx.Client(timeout=self._policy.timeout_s, limits=limits, transport=guard)
            return self._http

    def _headers(self) -> dict[str, str]:
        # Uncompressed, so that the limit on a response's bytes is one on memory, too (``_CODINGS``).
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if (key := self._key()) is not None:
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str | None:
        if (kept := self._policy.api_key_id) is not None:
            if self._context.key_of is None:
                raise self._unavailable("its key is kept by the service", remedy="It can be asked by its workers only.")
            return self._context.key_of(kept)
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

    def _cleaned(self, text: str, most: int = _MAX_MESSAGE) -> str:
        """Return a server's text for an error message: bounded, printable, and without the key if it repeats it."""
        key = self._key()
        return bounded(printable(text.replace(key, "[key]") if key else text).replace("\n", " ").strip(), most)

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

    def _ceilings(self, request: SampleRequest) -> TokenCeilings:
        return ceilings_of(self._policy, request, self._options.chat_overhead_tokens)


KIND: Final = PolicyKind(OpenAICompatible, "a model behind an endpoint that speaks the OpenAI protocol", takes_key=True)
