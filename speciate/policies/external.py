"""Represent a proposer outside the service: an agent or a person that sends programs to runs (ADR 38)."""

from typing import Final

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.values import Value
from speciate.policies.kind import LocalClient, PolicyKind
from speciate.ports.policy import SampleRequest, SampleResult


class ExternalOptions(Value):
    """Options of ``external``: none."""


class ExternalPolicy(LocalClient[ExternalOptions]):
    """Client that is never asked: runs of its policy wait for proposals."""

    options_type = ExternalOptions

    def _answer(self, _: SampleRequest) -> SampleResult:
        raise PolicyUnavailableError(
            f"policy {self._policy.slug!r} cannot be asked: it proposes from outside.",
            remedy="Send proposals to its runs with `speciate runs propose`, or use another policy.",
        )

    def ping(self) -> str:
        return "external needs no endpoint: its runs wait for proposals"


KIND: Final = PolicyKind(ExternalPolicy, ExternalOptions, "an agent or a person that sends programs to runs")
