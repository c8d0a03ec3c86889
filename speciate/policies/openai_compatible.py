"""Sample from an endpoint that speaks the OpenAI protocol: vLLM, the bundled inference server, or a hosted one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, Self

import numpy as np
from pydantic import Field

from speciate.domain.errors import FieldError, InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import DigestFrom, Policy, ServedWeights
from speciate.policies.endpoint_check import EndpointCheck
from speciate.policies.guides import Guide, check_guide, constraint_of
from speciate.policies.http_endpoint import HttpEndpoint, TransientError
from speciate.policies.identity import EndpointMismatchError, WeightsIdentity
from speciate.policies.kind import STANDALONE, ClientContext, PolicyKind, client_options
from speciate.policies.openai_wire import (
    MalformedResponseError,
    WeightsMismatchError,
    ceilings_of,
    path_of,
    payload_of,
    read_answer,
    reported_tokens,
)
from speciate.policies.queueing import QueueGate
from speciate.policies.request_fields import RequestFields, joined, one_each
from speciate.policies.retries import Backoff
from speciate.policies.usage import TokenCeilings
from speciate.ports.policy import SampleRequest, SampleResult

_RECHECK_S: Final = 30.0
_SLOW: Final = "Raise --timeout-s, or lower --sampling max_tokens or --option concurrency."


class OpenAICompatibleOptions(RequestFields):
    """Options of ``openai_compatible``.

    Attributes:
        max_retries: Attempts after the first one.
        backoff_s: Ceiling of the first wait between attempts; it doubles with every attempt.
        longest_wait_s: Longest wait between attempts, even if the server requests more.
        concurrency: Requests of one call that run at the same time.
        chat_overhead_tokens: Tokens that the chat template may add to a prompt; only the token ceiling counts them.
        max_response_bytes: Largest response to read.
        check: True to read the list of models before a run; some gateways have none.
        base_model: Base model of an adapter, which must be served.
        adapter_path: Path of the adapter ``model`` on the server's machine, to load it when it is not loaded; None for
            an adapter that the server was started with.
        guide: Constraint on the output: ``diff`` for SEARCH/REPLACE blocks, or a regex or grammar.
        max_waiting: Most sequences that may wait at the endpoint before further requests are held back; applies where
            its metrics report the queue.
        longest_queue_s: Longest time that a request is held back.
    """

    max_retries: int = Field(default=4, ge=0, le=20)
    backoff_s: float = Field(default=0.5, ge=0, le=60)
    longest_wait_s: float = Field(default=30.0, ge=0, le=600)
    concurrency: int = Field(default=8, ge=1, le=256)
    chat_overhead_tokens: int = Field(default=512, ge=0, le=100_000)
    max_response_bytes: int = Field(default=64 << 20, ge=1 << 10, le=1 << 28)
    check: bool = True
    base_model: str | None = Field(default=None, min_length=1, max_length=500)
    adapter_path: str | None = Field(default=None, min_length=1, max_length=4000)
    guide: Guide | None = None
    max_waiting: int = Field(default=256, ge=1, le=1_000_000)
    longest_queue_s: float = Field(default=600.0, gt=0, le=86_400)


class _SampleCall:
    """State of one call of ``sample``: its first failure ends all of its requests."""

    cause: PolicyUnavailableError | None = None


class OpenAICompatible:
    """Client of a policy behind an HTTP endpoint. Threads may share one instance.

    Args:
        policy: The registration.
        context: Networks and keys that may be used.
        sleep: Wait between attempts; tests replace it.

    Raises:
        InvalidInputError: The policy lacks ``base_url`` or ``model``, or an option is invalid.
    """

    def __init__(
        self, policy: Policy, context: ClientContext = STANDALONE, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        url, self._model = _address(policy)
        self._policy = policy
        self._options = client_options(policy, OpenAICompatibleOptions)
        check_guide(policy, self._options.guide)
        self._endpoint = HttpEndpoint(
            policy,
            url,
            context,
            connections=self._options.concurrency,
            max_response_bytes=self._options.max_response_bytes,
            loads_adapter=self._options.adapter_path is not None,
        )
        self._backoff = Backoff(self._options.backoff_s, self._options.longest_wait_s)
        self._sleep = sleep
        self._gate = QueueGate(self._endpoint.metrics, self._options.max_waiting)
        self._check = EndpointCheck(
            policy,
            adapter_path=self._options.adapter_path,
            base_model=self._options.base_model,
            guide=self._options.guide,
            adapt=self._options.apply,
            exchange=self._endpoint.check,
            send=self._endpoint.query,
        )
        self._pinned = bool(policy.served or policy.checkpoint_digest or self._options.adapter_path)
        self._checking = threading.Lock()
        self._check_due_at = 0.0 if self._pinned else math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        self._endpoint.close()

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return the bytes of the prompt, the overhead of a chat template, and the longest completions."""
        ceilings = self._ceilings(request)
        prompts = request.n if self._options.single else 1
        return prompts * ceilings.prompt + ceilings.completion

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order; they run concurrently.

        Raises:
            PolicyUnavailableError: The endpoint refused a request, or returned no valid answer within the retries.
        """
        if self._options.single:
            split = [one_each(request) for request in requests]
            answers = iter(self._sample([one for each in split for one in each]))
            return [joined([next(answers) for _ in each]) for each in split]
        return self._sample(requests)

    def _sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        call = _SampleCall()
        with ThreadPoolExecutor(max(1, min(len(requests), self._options.concurrency)), "policy") as pool:
            futures = [pool.submit(self._answer, request, call) for request in requests]
            wait(futures, return_when=FIRST_EXCEPTION)
            if call.cause is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        if call.cause is not None:
            call.cause.spent_tokens = _spent_tokens(futures)
            raise call.cause
        return [future.result() for future in futures]

    def ping(self) -> str:
        """Check the endpoint as before a run; return one line for people.

        Raises:
            PolicyUnavailableError: It does not answer, does not serve the model, or serves other weights than the
                registered ones.
        """
        identity = self._checked()
        if identity is None:
            return f"{self._endpoint.place} is not checked"
        known = "" if identity.digest is None else f", weights {identity.digest[:12]}"
        if identity.served.digest_from is DigestFrom.DECLARED:
            known += " as declared"
        return f"{self._endpoint.place} serves {self._model}{known}"

    def identify(self) -> Policy:
        """Return the policy with the weights that the endpoint serves, as far as they can be known.

        Raises:
            PolicyUnavailableError: As for ``ping``.
        """
        identity = self._checked()
        if identity is None:
            return self._policy
        served = identity.served if identity.served != ServedWeights() else None
        return self._policy.model_copy(update={"checkpoint_digest": identity.digest, "served": served})

    def revalidate(self) -> None:
        """Check the endpoint again before the next request, as at the start of a run."""
        self._check_due_at = 0.0

    def _checked(self) -> WeightsIdentity | None:
        if not self._options.check:
            return None
        try:
            return self._run_check()
        except TransientError as error:
            raise self._endpoint.unavailable(str(error)) from None

    def _run_check(self) -> WeightsIdentity:
        """Check the endpoint now.

        Raises:
            TransientError: Another attempt may succeed.
            PolicyUnavailableError: No attempt will.
        """
        try:
            identity = self._check.run()
        except MalformedResponseError as error:
            raise TransientError(str(error)) from None
        except EndpointMismatchError as error:
            message = self._endpoint.cleaned(str(error), 1000)
            raise self._endpoint.unavailable(message, remedy=error.remedy) from None
        self._check_due_at = time.monotonic() + _RECHECK_S if self._pinned else math.inf
        return identity

    def _check_when_due(self) -> None:
        """Check after a while, and whenever another server may have taken the endpoint's place."""
        if self._options.check and time.monotonic() >= self._check_due_at:
            with self._checking:
                if time.monotonic() >= self._check_due_at:
                    self._run_check()

    def _answer(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        try:
            return self._attempts(request, call)
        except PolicyUnavailableError as error:
            call.cause = call.cause or error
            raise

    def _attempts(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        rng = np.random.default_rng(request.seed)
        attempts = 1 + self._options.max_retries
        failure, tokens, remedy = "", 0, None
        for attempt in range(attempts):
            if call.cause is not None:
                raise call.cause
            try:
                return self._attempt(request, call)
            except TransientError as error:
                failure, retry_after_s = str(error), error.retry_after_s
                tokens = max(tokens, error.tokens)
                remedy = _SLOW if error.timed_out else None
                if error.elsewhere and self._pinned:
                    self.revalidate()
            if attempt + 1 < attempts:
                self._sleep(self._backoff.wait_s(attempt, rng, retry_after_s))
        unavailable = self._endpoint.unavailable(f"{failure} (after {attempts} attempts)", remedy=remedy)
        # A request is charged once: for the answer that is used or, if there is none, for the most expensive attempt.
        unavailable.spent_tokens = tokens
        raise unavailable

    def _attempt(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        self._check_when_due()
        longest_s = self._options.longest_queue_s
        with self._gate.slot(request.n, give_up=lambda: call.cause is not None, longest_s=longest_s) as admitted:
            if not admitted:
                raise call.cause or self._endpoint.unavailable(
                    f"more than {self._options.max_waiting} sequences waited there for {longest_s:g} s",
                    remedy="Add machines, run fewer searches at a time, or raise the option max_waiting.",
                )
            return self._exchange(request)

    def _exchange(self, request: SampleRequest) -> SampleResult:
        started = time.perf_counter()
        payload = self._options.apply(payload_of(self._policy, request)) | constraint_of(self._options.guide, request)
        body = self._endpoint.exchange("POST", path_of(self._policy), payload)
        ceilings = self._ceilings(request)
        try:
            return read_answer(body, self._policy, request, ceilings, time.perf_counter() - started)
        except MalformedResponseError as error:
            raise TransientError(str(error), tokens=reported_tokens(body, ceilings)) from None
        except WeightsMismatchError as error:
            raise self._endpoint.unavailable(
                str(error), remedy="Serve the registered weights, or register the served ones as the next version."
            ) from None

    def _ceilings(self, request: SampleRequest) -> TokenCeilings:
        return ceilings_of(self._policy, request, self._options.chat_overhead_tokens)


def _address(policy: Policy) -> tuple[str, str]:
    """Return the base URL and the model; raises ``InvalidInputError`` if one is missing."""
    if policy.base_url is not None and policy.model is not None:
        return policy.base_url, policy.model
    missing = (
        FieldError("expected an address such as http://127.0.0.1:8000/v1", where="base_url")
        if policy.base_url is None
        else FieldError("expected a name that GET /models lists", where="model")
    )
    raise InvalidInputError(
        f"policy {policy.slug!r} of kind {policy.kind!r} has no {missing}.", field_errors=(missing,)
    )


def _spent_tokens(futures: Sequence[Future[SampleResult]]) -> int:
    """Return the tokens of all requests of a failed call; one error may have ended several of them."""
    done = [future for future in futures if not future.cancelled()]
    failures = {error for future in done if isinstance(error := future.exception(), PolicyUnavailableError)}
    answered = sum(future.result().tokens for future in done if future.exception() is None)
    return answered + sum(error.spent_tokens for error in failures)


KIND: Final = PolicyKind(OpenAICompatible, "a model behind an endpoint that speaks the OpenAI protocol", takes_key=True)
