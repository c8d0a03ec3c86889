"""Seeds the global random generators, so that a deterministic program answers the same for the same seed.

Generators that a program makes for itself (``numpy.random.default_rng()``) take fresh entropy and stay its own affair.
"""

import sys


def import_generators(text: str) -> None:
    """Import the random modules that a program mentions, so that they can be seeded before it runs.

    Importing them for every program would cost more than starting the interpreter.
    """
    if "random" in text:
        import random  # noqa: F401
    if "numpy" in text and "random" in text:
        try:
            import numpy.random  # noqa: F401
        except ImportError:
            return  # the program meets the same error and reports it


def seed_generators(seed: int) -> None:
    """Seed those of ``random`` and ``numpy.random`` that are imported."""
    if (module := sys.modules.get("random")) is not None:
        module.seed(seed)
    if (module := sys.modules.get("numpy.random")) is not None:
        module.seed(seed % (1 << 32))
