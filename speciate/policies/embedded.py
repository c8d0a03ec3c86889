"""Asks the policy server that runs beside the service: whoever starts it tells the workers where it listens.

The address is no part of the registration, so that a policy stays the same version wherever the service is started.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.policies.kind import STANDALONE, ClientContext, PolicyKind
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.settings import SERVE_TOKEN_VARIABLE, secret_of

ADDRESS_VARIABLE: Final = "SPECIATE_POLICY_URL"


class InferenceServerPolicy:
    """A checkpoint of the policy server beside us, by the name that it is served under."""

    def __init__(self, policy: Policy, context: ClientContext = STANDALONE) -> None:
        if policy.base_url is not None or policy.model is None:
            raise InvalidInputError(
                f"policy {policy.slug!r} of kind 'embedded' needs a model and no base_url.",
                remedy="Use kind 'openai_compatible' for an endpoint of your own.",
            )
        self._policy = policy
        # Its address is a setting of the operator's, so it may be anywhere.
        self._context = replace(context, network=None)
        # The address is looked up when it is needed; what a request costs at most does not depend on it.
        self._unasked = OpenAICompatible(policy.model_copy(update={"base_url": "http://unknown.invalid/v1"}))
        self._client: OpenAICompatible | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return a number of tokens that the request can never exceed."""
        return self._unasked.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order."""
        return self._asked().sample(requests)

    def ping(self) -> str:
        """Return one line that says the policy can be used."""
        return self._asked().ping()

    def identify(self) -> Policy:
        """Return the policy as it is, after a look at the server where it is known."""
        if os.environ.get(ADDRESS_VARIABLE):
            self._asked().identify()
        return self._policy

    def revalidate(self) -> None:
        """Have the server looked at again before it answers."""
        self._asked().revalidate()

    def _asked(self) -> OpenAICompatible:
        address = os.environ.get(ADDRESS_VARIABLE)
        if not address:
            raise PolicyUnavailableError(
                f"policy {self._policy.slug!r} is served beside the service, and no such server is known here.",
                remedy=f"`speciate up` starts one; otherwise run `speciate serve` and set {ADDRESS_VARIABLE}.",
            )
        if self._client is None:
            where = {"base_url": address}
            # It asks for a token where it listens to other machines.
            if secret_of(SERVE_TOKEN_VARIABLE) is not None:
                where["api_key_env"] = SERVE_TOKEN_VARIABLE
            self._client = OpenAICompatible(self._policy.model_copy(update=where), self._context)
        return self._client


KIND: Final = PolicyKind(
    InferenceServerPolicy, "a checkpoint of the inference server beside the service", takes_key=True
)
