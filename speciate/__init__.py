"""Speciate: evolutionary search with language models on vector rewards.

import speciate

result = speciate.evolve("initial_program.py", "evaluator.py", model="openai/gpt-5-mini", evaluations=100)
print(result.best.rewards, result.best.program)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speciate.evolution.call import estimate, evolve, evolve_async

__all__ = ["__version__", "estimate", "evolve", "evolve_async"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a function at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from speciate.evolution import call

    return getattr(call, name)
