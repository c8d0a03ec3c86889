"""Sample from an endpoint that speaks the OpenAI protocol: vLLM, the bundled inference server, or a hosted one."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import numpy as np

from speciate.domain.errors import FieldError, InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import DigestFrom, Policy, ServedWeights
from speciate.domain.rollout import REFUSED, Completion
from speciate.policies.endpoint_check import EndpointCheck
from speciate.policies.http_endpoint import BROKEN, OTHER_SERVICE, HttpEndpoint, PromptRefusedError, TransientError
from speciate.policies.identity import WeightsIdentity
from speciate.policies.kind import ENDPOINT, STANDALONE, ClientContext, PolicyKind, client_options
from speciate.policies.openai_options import OpenAICompatibleOptions
from speciate.policies.openai_wire import (
    EndpointMismatchError,
    ErrorInResponseError,
    MalformedResponseError,
    Reply,
    ceilings_of,
    most_reply,
    path_of,
    payload_of,
    read_answer,
    reported_usage,
)
from speciate.policies.request_fields import joined, one_each
from speciate.policies.scaffold import sample_sets
from speciate.policies.usage import Billed, TokenCeilings, Usage, billed
from speciate.ports.interruption import interrupted, sleep
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.compact import turns_of

_log = logging.getLogger(__name__)
_RECHECK_S: Final = 30.0
_OUTAGE_S: Final = 60.0
"""An unavailable endpoint is left alone for this long while other policies answer."""
_MOST_REFUSAL: Final = 1000
_GATEWAY_TIMEOUTS: Final = frozenset({408, 504, 524})
"""Statuses of a proxy that waited in vain for an answer, which may have been computed all the same."""


class _SampleCall:
    """State of one call of ``sample``: its first failure ends all of its requests."""

    def __init__(self, *, replaceable: bool) -> None:
        self.replaceable = replaceable
        self.cause: PolicyUnavailableError | None = None
        self._lock = threading.Lock()
        self.billed = Billed()

    def book(self, billed: Billed) -> None:
        with self._lock:
            self.billed += billed


class OpenAICompatible(AbstractContextManager["OpenAICompatible"]):
    """Client of a policy behind an HTTP endpoint. Threads may share one instance."""

    def __init__(
        self, policy: Policy, context: ClientContext = STANDALONE, *, sleep: Callable[[float], None] = sleep
    ) -> None:
        url, self._model = _address(policy)
        self._policy = policy
        self._options = client_options(policy, OpenAICompatibleOptions)
        self._endpoint = HttpEndpoint(policy, url, context, self._options)
        self._sleep = sleep
        self._check = EndpointCheck(policy, self._options, self._endpoint)
        self._pinned = bool(policy.served or policy.checkpoint_digest or self._options.adapter_path)
        self._checking = threading.Lock()
        self._check_due_at = 0.0 if self._pinned else math.inf
        self._has_answered, self._patience_s = False, 0.0
        self._outage, self._outage_until = "", 0.0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._endpoint.close()

    def token_ceiling(self, request: SampleRequest) -> int:
        ceilings, turns = self._ceilings(request), turns_of(self._policy, request.prompt, request.role)
        prompts = (request.n if self._options.single else 1) + (turns - 1) * request.n
        again = (turns - 1) * request.n * most_reply(self._policy, request)  # later requests read earlier answers
        return prompts * ceilings.prompt + turns * ceilings.completion + again

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order; they run concurrently.

        Raises ``PolicyUnavailableError``; for replaceable requests without asking, soon after another such error.
        """
        call = _SampleCall(replaceable=all(request.replaceable for request in requests))
        if call.replaceable and time.monotonic() < self._outage_until:
            raise PolicyUnavailableError(self._outage)
        return sample_sets(self._policy, requests, lambda each: self._round(each, call))

    def _round(self, requests: Sequence[SampleRequest], call: _SampleCall) -> list[SampleResult]:
        if self._options.single:
            split = [one_each(request) for request in requests]
            answers = iter(self._sample([one for each in split for one in each], call))
            return [joined([next(answers) for _ in each], self._policy.price) for each in split]
        return self._sample(requests, call)

    def _sample(self, requests: Sequence[SampleRequest], call: _SampleCall) -> list[SampleResult]:
        with ThreadPoolExecutor(max(1, min(len(requests), self._options.concurrency)), "policy") as pool:
            # Each thread reads from the context whether the work is interrupted.
            futures = [pool.submit(copy_context().run, self._answer, request, call) for request in requests]
            wait(futures, return_when=FIRST_EXCEPTION)
            if call.cause is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        if call.cause is not None:
            call.cause.spent = call.billed.charge(self._policy.price)
            if not interrupted():
                self._outage, self._outage_until = str(call.cause), time.monotonic() + _OUTAGE_S
            raise call.cause
        return [future.result() for future in futures]

    def ping(self) -> str:
        identity = self.checked()
        if identity is None:
            return f"{self._endpoint.place} is not checked"
        weights = "" if identity.digest is None else f", weights {identity.digest[:12]}"
        if identity.served.digest_from is DigestFrom.DECLARED:
            weights += " as declared"
        if self._policy.probe is not None:
            seen = identity.verification
            weights += "; its answers have no log-probabilities" if seen is None else f"; it answers with {seen.said}"
        return f"{self._endpoint.place} serves {self._model}{weights}"

    @property
    def verdict(self) -> str | None:
        """What the answers said of the weights when they were checked; None if they were not compared."""
        seen = self._check.verification
        return None if seen is None else seen.verdict.name.lower()

    def identify(self) -> Policy:
        identity = self.checked()
        if identity is None:
            return self._policy
        served = identity.served if identity.served != ServedWeights() else None
        return self._policy.model_copy(update={"checkpoint_digest": identity.digest, "served": served})

    def revalidate(self) -> None:
        self._check_due_at = self._outage_until = 0.0

    def checked(self) -> WeightsIdentity | None:
        """Check the endpoint; return the identity of its weights, or None if the policy is not to be checked."""
        if not self._options.check:
            return None
        try:
            return self._run_check()
        except TransientError as error:
            raise self._endpoint.unavailable(str(error), remedy=error.remedy) from None

    def _run_check(self) -> WeightsIdentity:
        try:
            identity = self._check.run()
        except MalformedResponseError as error:
            raise self._malformed(error) from None
        except EndpointMismatchError as error:
            raise self._mismatch(error) from None
        self._check_due_at = time.monotonic() + _RECHECK_S if self._pinned else math.inf
        return identity

    def _malformed(self, error: MalformedResponseError, *, stream: bool = False) -> TransientError:
        remedy, text = BROKEN if stream or self._has_answered else OTHER_SERVICE, str(error)
        return TransientError(self._endpoint.cleaned(text, _MOST_REFUSAL), lasting=not self._patience_s, remedy=remedy)

    def _mismatch(self, error: EndpointMismatchError) -> PolicyUnavailableError:
        return self._endpoint.unavailable(self._endpoint.cleaned(str(error), _MOST_REFUSAL), remedy=error.remedy)

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
        attempts, lost, failure, lasts, outage_s = 0, Billed(), "", False, 0.0
        while True:
            if call.cause is not None:
                raise call.cause
            if interrupted():
                raise self._endpoint.unavailable("the request was interrupted")
            began = time.monotonic()
            try:
                self._check_when_due()
                return _with(self._exchange(request, call), lost)
            except TransientError as error:
                lasts, failure = error.lasting and str(error) == failure, str(error)
                cost, remedy, retry_after_s = error.billed, error.remedy, error.retry_after_s
                if error.elsewhere and self._pinned:
                    self.revalidate()
            call.book(cost)
            lost += cost
            attempts += 1
            outage_s += time.monotonic() - began
            surplus = attempts - self._options.max_retries
            patience_s = self._patience_s * (not call.replaceable)
            if lasts or (surplus > 0 and outage_s >= patience_s):
                self._patience_s -= patience_s  # a run that is resumed in vain pauses soon
                break
            if surplus == 1:
                _log.warning("%s Attempts go on for %g s.", self._endpoint.unavailable(failure), self._patience_s)
            # The reservation holds one attempt: what this one cost has to be reserved again.
            if cost.tokens and not request.reserve(cost.tokens):
                text = f"{failure} (after {attempts} attempts; the budget holds no further one)\n{remedy or ''}"
                return SampleResult((Completion(text, lost.completion, REFUSED),), lost.prompt, 0.0, lost.estimated)
            if retry_after_s is None or surplus > 0:
                ceiling = self._options.backoff_s * 2.0 ** min(attempts - 1, 20)
                own_s = min(self._options.longest_wait_s, ceiling) * float(rng.uniform(0.5, 1.0))
                retry_after_s = max(own_s, retry_after_s or 0.0, float(surplus > 0))  # not many attempts at once
            retry_after_s = min(retry_after_s, self._options.longest_wait_s)
            self._sleep(retry_after_s)
            outage_s += retry_after_s
        raise self._endpoint.unavailable(f"{failure} (after {attempts} attempts)", remedy=remedy)

    def _exchange(self, request: SampleRequest, call: _SampleCall) -> SampleResult:
        started = time.perf_counter()
        payload = self._options.apply(payload_of(self._policy, request, stream=self._options.stream))
        ceilings = self._ceilings(request)
        try:
            reply = self._endpoint.exchange("POST", path_of(self._policy), payload)
        except TransientError as error:
            error.billed = billed(Usage(), ceilings, computed=error.sent)
            raise
        try:
            result = self._read(reply, payload, request, ceilings, time.perf_counter() - started)
            self._has_answered, self._patience_s, self._outage_until = True, self._options.outage_s, 0.0
        except PromptRefusedError as refusal:
            text = self._endpoint.cleaned(str(refusal), _MOST_REFUSAL)
            cost = self._billed(reply, ceilings)
            refused = Completion(f"{text}\n{refusal.remedy}", cost.completion, REFUSED)
            result = SampleResult((refused,), cost.prompt, time.perf_counter() - started, cost.estimated)
        except TransientError as error:
            error.billed = self._billed(reply, ceilings)
            raise
        except PolicyUnavailableError:
            call.book(self._billed(reply, ceilings))
            raise
        call.book(Billed(result.prompt_tokens, result.tokens - result.prompt_tokens, result.estimated_tokens))
        return result

    def _read(
        self,
        reply: Reply,
        payload: Mapping[str, Any],
        request: SampleRequest,
        ceilings: TokenCeilings,
        latency_s: float,
    ) -> SampleResult:
        if reply.status != HTTPStatus.OK:
            raise self._endpoint.refusal(reply, payload)
        try:
            result = read_answer(reply, self._policy, request, ceilings, latency_s)
        except ErrorInResponseError as error:
            raise self._endpoint.refusal(replace(reply, status=error.status, body=error.body), payload) from None
        except MalformedResponseError as error:
            raise self._malformed(error, stream=reply.is_stream) from None
        except EndpointMismatchError as error:
            raise self._mismatch(error) from None
        completions = list(result.completions)
        for i, each in enumerate(completions):
            if each.finish_reason == REFUSED:
                completions[i] = replace(each, text=self._endpoint.cleaned(each.text, _MOST_REFUSAL))
        return replace(result, completions=tuple(completions))

    def _billed(self, reply: Reply, ceilings: TokenCeilings) -> Billed:
        good = reply.status == HTTPStatus.OK and "html" not in reply.content_type  # such as a page for signing in
        computed = good or reply.status in _GATEWAY_TIMEOUTS
        return billed(reported_usage(reply, ceilings), ceilings, computed=computed)

    def _ceilings(self, request: SampleRequest) -> TokenCeilings:
        return ceilings_of(self._policy, request, self._options.chat_overhead_tokens)


def _address(policy: Policy) -> tuple[str, str]:
    if policy.base_url is not None and policy.model is not None:
        return policy.base_url, policy.model
    missing = FieldError("expected a name that GET /models lists", where="model")
    if policy.base_url is None:
        missing = FieldError("expected an address such as http://127.0.0.1:8000/v1", where="base_url")
    message = f"policy {policy.slug!r} of kind {policy.kind!r} has no {missing}."
    raise InvalidInputError(message, field_errors=(missing,))


def _with(result: SampleResult, lost: Billed) -> SampleResult:
    """Return the result of a request, charged for its failed attempts as well."""
    first, *rest = result.completions
    return replace(
        result,
        completions=(replace(first, tokens=first.tokens + lost.completion), *rest),
        prompt_tokens=result.prompt_tokens + lost.prompt,
        estimated_tokens=result.estimated_tokens + lost.estimated,
    )


KIND: Final = PolicyKind(
    OpenAICompatible,
    OpenAICompatibleOptions,
    "a model behind an endpoint that speaks the OpenAI protocol",
    fields=ENDPOINT,
    takes_key=True,
)
