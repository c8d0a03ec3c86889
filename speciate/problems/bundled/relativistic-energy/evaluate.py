"""Score a formula against the energy of a moving mass."""

from formula import evaluate  # noqa: F401
