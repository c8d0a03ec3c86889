"""Sample from the inference server that runs beside the service.

The server's address is a setting and not part of the registration, so that a policy keeps its version wherever the
service runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.egress.network import AllowedNetworks
from speciate.policies.kind import MODEL, STANDALONE, ClientContext, PolicyKind
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.openai_options import OpenAICompatibleOptions
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.settings import SERVE_TOKEN_VARIABLE, secret_of

_EVERYWHERE: Final = AllowedNetworks(("0.0.0.0/0", "::/0"))
ADDRESS_VARIABLE: Final = "SPECIATE_POLICY_URL"


class InferenceServerPolicy:
    """Client of a checkpoint that the inference server serves under the policy's model name."""

    def __init__(self, policy: Policy, context: ClientContext = STANDALONE) -> None:
        if policy.base_url is not None or policy.model is None:
            raise InvalidInputError(
                f"policy {policy.slug!r} of kind 'embedded' needs a model and no base_url.",
                remedy="Use kind 'openai_compatible' for another endpoint.",
            )
        self._policy = policy
        # The operator configures the server's address, so every network is allowed; a proxy would get its token.
        self._context = replace(context, network=_EVERYWHERE)
        # The address is read on first use; the token ceiling does not depend on it.
        self._offline = OpenAICompatible(policy.model_copy(update={"base_url": "http://unknown.invalid/v1"}))
        self._client: OpenAICompatible | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def token_ceiling(self, request: SampleRequest) -> int:
        return self._offline.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        return self._connected().sample(requests)

    def ping(self) -> str:
        return self._connected().ping()

    def identify(self) -> Policy:
        if os.environ.get(ADDRESS_VARIABLE):
            self._connected().identify()
        return self._policy

    def revalidate(self) -> None:
        self._connected().revalidate()

    def _connected(self) -> OpenAICompatible:
        address = os.environ.get(ADDRESS_VARIABLE)
        if not address:
            raise PolicyUnavailableError(
                f"policy {self._policy.slug!r} needs the inference server, and {ADDRESS_VARIABLE} is not set.",
                remedy=f"`speciate up` starts the server; otherwise run `speciate serve` and set {ADDRESS_VARIABLE}.",
            )
        if self._client is None:
            update = {"base_url": address}
            # A server that listens to other machines requires a token.
            if secret_of(SERVE_TOKEN_VARIABLE) is not None:
                update["api_key_env"] = SERVE_TOKEN_VARIABLE
            self._client = OpenAICompatible(self._policy.model_copy(update=update), self._context)
        return self._client


KIND: Final = PolicyKind(
    InferenceServerPolicy,
    OpenAICompatibleOptions,
    "a checkpoint of the inference server beside the service",
    fields=MODEL,
    takes_key=True,
)
