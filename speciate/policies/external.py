"""Represent a proposer outside the service: an agent or a person that sends programs to runs (ADR 38)."""

from collections.abc import Sequence
from typing import Final

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.domain.values import Value
from speciate.policies.kind import STANDALONE, ClientContext, PolicyKind, client_options
from speciate.ports.policy import SampleRequest, SampleResult


class ExternalOptions(Value):
    """Options of ``external``: none."""


class ExternalPolicy:
    """Client that is never asked: runs of its policy wait for proposals."""

    def __init__(self, policy: Policy, _: ClientContext = STANDALONE) -> None:
        client_options(policy, ExternalOptions)
        self._slug = policy.slug

    def token_ceiling(self, _: SampleRequest) -> int:
        return 0

    def sample(self, _: Sequence[SampleRequest]) -> list[SampleResult]:
        raise PolicyUnavailableError(
            f"policy {self._slug!r} cannot be asked: it proposes from outside.",
            remedy="Send proposals to its runs with `speciate runs propose`, or use another policy.",
        )

    def ping(self) -> str:
        return "external needs no endpoint: its runs wait for proposals"


KIND: Final = PolicyKind(ExternalPolicy, ExternalOptions, "an agent or a person that sends programs to runs")
