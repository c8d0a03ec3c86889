"""Check that the libraries for training are installed, without importing them."""

from importlib.util import find_spec

from speciate.domain.errors import ConfigurationError


def require_training() -> None:
    if missing := [name for name in ("torch", "transformers", "peft", "trl") if find_spec(name) is None]:
        raise ConfigurationError(
            f"training requires {' and '.join(missing)}, not installed here.",
            remedy="Run `pip install 'speciate[train]'`; without a GPU, first install torch from its CPU index.",
        )
