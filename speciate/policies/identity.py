"""Identify the weights that an endpoint serves, and compare them with the registered ones.

vLLM's model list names a folder or repository (``root``) and, for an adapter, its base model (``parent``). The bundled
inference server states the SHA-256 of the weights. ``created`` is the time of the request and identifies nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import httpx

from speciate.domain.errors import NotFoundError
from speciate.domain.policy import DigestFrom, Policy, ServedWeights
from speciate.policies.manifest import WEIGHTS, weights_digest
from speciate.policies.openai_wire import EndpointMismatchError, ModelCard
from speciate.policies.verification import Verification
from speciate.settings import is_loopback

_MOST_READ_BYTES: Final = 8 << 30
_REMEDY: Final = "Serve the expected weights under that name, or register the policy as a new version."


@dataclass(frozen=True, slots=True)
class WeightsIdentity:
    """Identity of the weights behind a model's name."""

    digest: str | None
    """SHA-256 of the policy's own weights (an adapter's for an adapter); None if unknown."""
    served: ServedWeights
    verification: Verification | None = None
    """What its answers say; None if the policy has no probe, or the endpoint reports no log-probabilities."""


def identify(policy: Policy, card: ModelCard, cards: Sequence[ModelCard]) -> WeightsIdentity:
    """Return the identity of a served model; ``EndpointMismatchError`` if it differs from the registration."""
    base = next((other for other in cards if other.id == card.parent), None)
    digest, source = _digest(policy, card)
    if digest is not None and policy.checkpoint_digest not in (None, digest):
        origin = f"read from {card.root}" if source is DigestFrom.FILES else "as it reports"
        raise EndpointMismatchError(
            f"{card.id} is served with weights {digest} ({origin}): expected {policy.checkpoint_digest}", _REMEDY
        )
    served = ServedWeights(
        root=card.root,
        base_root=None if base is None else base.root,
        base_digest=None if base is None else _digest(policy, base)[0],
        digest_from=source,
    )
    if policy.served is not None:
        _compare(card.id, policy.served, served)
    return WeightsIdentity(digest or policy.checkpoint_digest, served)


def check_length(policy: Policy, card: ModelCard, cards: Sequence[ModelCard]) -> None:
    lengths = [other.max_model_len for other in (card, *cards) if other.id in (card.id, card.parent)]
    longest = next((length for length in lengths if length is not None), None)
    if longest is not None and policy.sampling.max_tokens >= longest:
        raise EndpointMismatchError(
            f"{card.id} reads {longest} tokens, prompt and answer together, and max_tokens is"
            f" {policy.sampling.max_tokens}",
            "Lower max_tokens (`speciate evolve --max-tokens N`), or serve the model with a larger --max-model-len.",
        )


def _compare(name: str, before: ServedWeights, now: ServedWeights) -> None:
    for what in ("root", "base_root", "base_digest"):
        was, is_now = getattr(before, what), getattr(now, what)
        # A value that is unknown may still be the same: another proxy may hide it.
        if was is not None and is_now is not None and was != is_now:
            words = what.replace("base_", "base model's ").replace("root", "source")
            raise EndpointMismatchError(f"the {words} of {name} was {was} at registration and is {is_now} now", _REMEDY)


def _digest(policy: Policy, card: ModelCard) -> tuple[str | None, DigestFrom | None]:
    if card.digest is not None:
        return card.digest, DigestFrom.ENDPOINT
    # The endpoint's path can be read only if it runs on this machine.
    here = is_loopback(httpx.URL(policy.base_url or "").host)
    digest = _of_folder(card.root) if here and card.root is not None else None
    if digest is not None:
        return digest, DigestFrom.FILES
    declared = policy.checkpoint_digest is not None and card.id == policy.model
    return None, DigestFrom.DECLARED if declared else None


def _of_folder(root: str) -> str | None:
    folder = Path(root)
    if not folder.is_absolute():
        return None
    for name in WEIGHTS:
        try:
            state = (folder / name).stat()
        except (OSError, ValueError):
            continue
        if state.st_size > _MOST_READ_BYTES or not os.access(folder / name, os.R_OK):
            return None
        return _cached_digest(folder, state.st_ino, state.st_size, state.st_mtime_ns)
    return None


@lru_cache(maxsize=64)
def _cached_digest(folder: Path, *_: int) -> str | None:
    """Return the digest of a folder's weights; the file's inode, size and time are part of the cache key."""
    try:
        return weights_digest(folder)
    except (OSError, NotFoundError):
        return None
