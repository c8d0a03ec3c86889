"""Check that the libraries for training are installed, without importing them."""

from __future__ import annotations

from importlib.util import find_spec

from speciate.domain.errors import ConfigurationError


def require_training() -> None:
    """Raise ``ConfigurationError`` if the extra ``train`` is not installed."""
    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise ConfigurationError(
            f"a learn worker needs {' and '.join(missing)}, not installed here.",
            remedy="Install them with: pip install 'speciate[train]'.",
        )
