"""What an installation gives its policy clients: which addresses they may ask, and the keys that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from speciate.egress.network import LOOPBACK, Network

KEY_VARIABLES: Final = "POLICY_KEY"
"""How the name of an environment variable begins that a policy may name for its key: it could send any other secret of
the workers to its endpoint."""


KEYED_KINDS: Final = ("openai_compatible", "embedded")
"""Kinds whose endpoint may ask for a key."""


_THIS_MACHINE: Final = Network((LOOPBACK,))


@dataclass(frozen=True)
class Surroundings:
    """What a client finds around it.

    Attributes:
        network: What may be asked; None for an address that the operator gave himself.
        key_of: Returns the key that is kept under an id; raises ``UnavailableError``.
    """

    network: Network | None = _THIS_MACHINE
    key_of: Callable[[str], str] | None = None


ALONE: Final = Surroundings()
"""A program without an installation: public addresses and this machine, no kept keys."""
