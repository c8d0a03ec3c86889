"""Define a policy kind: its client, what the client may use, and what the command line and the form show."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy
from speciate.domain.validation import read_options
from speciate.domain.values import Value
from speciate.egress.network import LOOPBACK, AllowedNetworks
from speciate.ports.policy import PolicyClient, SampleRequest, SampleResult
from speciate.settings import ANY_COMMAND, Settings

KEY_VARIABLE_PREFIX: Final = "POLICY_KEY"
"""Prefix of the environment variables that a policy may name for its API key. Without it a policy could send any other
secret of the workers to its endpoint."""

_THIS_MACHINE: Final = AllowedNetworks((LOOPBACK,))

Options = TypeVar("Options", bound=Value)


@dataclass(frozen=True)
class ClientContext:
    """The networks and keys that an installation gives its policy clients."""

    network: AllowedNetworks = _THIS_MACHINE
    """Networks that a client may contact; None for an address that the operator configured."""
    key_of: Callable[[str], str] | None = None
    """Return the API key stored under an id; raises ``UnavailableError``."""
    commands: tuple[str, ...] = ()
    """Commands that policies may run on this machine; ``*`` allows every one."""
    variables: tuple[str, ...] = ()
    """Environment variables that these commands receive besides those of every user."""

    @classmethod
    def of(cls, settings: Settings, key_of: Callable[[str], str]) -> Self:
        return cls(settings.network, key_of, settings.agent_commands, settings.agent_environment)

    def allows(self, command: Sequence[str]) -> bool:
        return any(each == ANY_COMMAND or shlex.split(each) == [*command] for each in self.commands)


STANDALONE: Final = ClientContext(commands=(ANY_COMMAND,))
"""Context of a program without an installation: public addresses and loopback, no stored keys, any command."""


ANSWERS: Final = frozenset({"answers_per_rollout"})
PROMPTS: Final = ANSWERS | {
    *("training_method", "edit_format", "prompt_style", "prompt_tokens", "sampling", "timeout_s", "price")
}
MODEL: Final = PROMPTS | {"model", "checkpoint_digest", "prompt_format", "codec"}
ENDPOINT: Final = MODEL | {"base_url", "api_key_env"}
"""Fields of a policy that a kind may read."""


@dataclass(frozen=True)
class PolicyKind:
    """Declare a kind of policy; its module calls the declaration ``KIND``."""

    client: Callable[[Policy, ClientContext], PolicyClient]
    """Build the client without contacting anything. Raises ``InvalidInputError`` if the registration lacks a field that
    the kind needs, or an option is invalid."""
    options: type[Value]
    summary: str
    """Noun phrase that the command line and the form show."""
    fields: frozenset[str] = frozenset()
    """Fields of a policy that it reads besides name, kind, description and options."""
    takes_key: bool = False
    """True if an API key may be stored for its endpoint."""


def client_options(policy: Policy, model: type[Options]) -> Options:
    return read_options(f"policy {policy.slug!r} of kind {policy.kind!r}", model, policy.options, where="options")


class LocalClient(ABC, Generic[Options]):
    """Client that answers in this process, each request from its own seed and relatives alone."""

    options_type: type[Options]

    def __init__(self, policy: Policy, _: ClientContext = STANDALONE) -> None:
        self._policy = policy
        self._answers = policy.answers_per_rollout
        self._options = client_options(policy, self.options_type)

    def token_ceiling(self, request: SampleRequest) -> int:  # noqa: ARG002 - the port's signature
        return 0

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        return [self._answer(request) for request in requests]

    def ping(self) -> str:
        return f"{self._policy.kind} needs no endpoint"

    @abstractmethod
    def _answer(self, request: SampleRequest) -> SampleResult: ...

    def _require_program(self, program: str) -> None:
        if not program.strip():
            raise PolicyUnavailableError(
                f"{self._policy.kind} only edits programs, and this problem has no seed program.",
                remedy="Add a seed_program to the problem, or use a policy that writes programs from scratch.",
            )
