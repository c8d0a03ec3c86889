"""Score a formula against Planck's law."""

from formula import evaluate  # noqa: F401
