"""Seed the global random generators, so that a deterministic program repeats its answers for the same seed.

Generators that a program creates (``numpy.random.default_rng()``) take fresh entropy and are not seeded here.
"""

import contextlib
import random
import sys


def import_generators(text: str) -> None:
    """Import numpy's random module if a program mentions it, so that it can be seeded before it runs."""
    if "numpy" in text and "random" in text:
        with contextlib.suppress(ImportError):  # the program raises the same error and reports it
            import numpy.random  # noqa: F401


def seed_generators(seed: int) -> None:
    """Seed ``random``, and ``numpy.random`` if it is imported."""
    random.seed(seed)
    if (module := sys.modules.get("numpy.random")) is not None:
        module.seed(seed % (1 << 32))
