"""Whether the processes are there beside the library: the wheel holds ``speciate`` alone, a checkout all of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from speciate.domain.errors import ConfigurationError

PROCESSES: Final = ("service", "workers", "evaluators")


def missing_processes() -> list[str]:
    """Return the roots that are not installed."""
    return [name for name in PROCESSES if find_spec(name) is None]


def not_installed(missing: Sequence[str]) -> ConfigurationError:
    """Return the error of a command that needs them."""
    return ConfigurationError(
        f"the processes {', '.join(missing)} are not installed beside the library.",
        remedy="Run this from a checkout of the project, installed by `pip install -e .`.",
    )
