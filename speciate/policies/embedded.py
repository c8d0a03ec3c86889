"""Sample from the inference server that runs beside the service.

The server's address is a setting and not part of the registration, so that a policy keeps its version wherever the
service runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.egress.network import AllowedNetworks
from speciate.policies.kind import MODEL, STANDALONE, ClientContext, PolicyKind
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.openai_options import OpenAICompatibleOptions
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.settings import SERVE_TOKEN_VARIABLE, load_settings, secret_of

_EVERYWHERE: Final = AllowedNetworks(("0.0.0.0/0", "::/0"))
ADDRESS_VARIABLE: Final = "SPECIATE_POLICY_URL"


class InferenceServerPolicy(OpenAICompatible):
    """Client of a checkpoint that the inference server serves under the policy's model name."""

    def __init__(self, policy: Policy, context: ClientContext = STANDALONE) -> None:
        if policy.base_url is not None or policy.model is None:
            raise InvalidInputError(
                f"policy {policy.slug!r} of kind 'embedded' needs a model and no base_url.",
                remedy="Use kind 'openai_compatible' for another endpoint.",
            )
        self._registered, self._address = policy, load_settings().policy_url
        update = {"base_url": self._address or "http://unknown.invalid/v1"}
        # A server that listens to other machines requires a token.
        if secret_of(SERVE_TOKEN_VARIABLE) is not None:
            update["api_key_env"] = SERVE_TOKEN_VARIABLE
        # The operator configures the server's address, so every network is allowed; a proxy would get its token.
        super().__init__(policy.model_copy(update=update), replace(context, network=_EVERYWHERE))

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        self._require_address()
        return super().sample(requests)

    def ping(self) -> str:
        self._require_address()
        return super().ping()

    def identify(self) -> Policy:
        if self._address:
            super().identify()
        return self._registered

    def _require_address(self) -> None:
        if not self._address:
            raise PolicyUnavailableError(
                f"policy {self._registered.slug!r} needs the inference server, and {ADDRESS_VARIABLE} is not set.",
                remedy=f"`speciate up` starts the server; otherwise run `speciate serve` and set {ADDRESS_VARIABLE}.",
            )


KIND: Final = PolicyKind(
    InferenceServerPolicy,
    OpenAICompatibleOptions,
    "a checkpoint of the inference server beside the service",
    fields=MODEL,
    takes_key=True,
)
