"""Bundled checkpoints: a third of a million parameters each, trained by ``speciate train`` with seed 0."""

from __future__ import annotations

from pathlib import Path

from speciate.domain.policy import Policy
from speciate.policies.manifest import MANIFEST, policy_of


def checkpoints() -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(Path(__file__).parent.glob(f"*/{MANIFEST}"))}


def bundled_policies() -> list[Policy]:
    """Return the registrations of the checkpoints, as served by the inference server beside the service."""
    return [policy_of(folder, name) for name, folder in checkpoints().items()]
