"""The search strategies. A new strategy is one file and one line in ``STRATEGIES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.domain.validation import read_options
from speciate.search.strategies.best_of_n import BestOfN
from speciate.search.strategies.islands_map_elites import IslandsMapElites
from speciate.search.strategies.mind_evolution import MindEvolution
from speciate.search.strategies.sequential_revision import SequentialRevision
from speciate.search.strategies.vector_evolution import VectorEvolution
from speciate.search.strategy import Strategy

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    "best_of_n": BestOfN,
    "sequential_revision": SequentialRevision,
    "mind_evolution": MindEvolution,
    "islands_map_elites": IslandsMapElites,
    "vector_evolution": VectorEvolution,
}
"""Strategies by name."""


def build_strategy(name: str, options: Mapping[str, Any]) -> Strategy:
    """Return a strategy with the given options.

    Args:
        name: A key of ``STRATEGIES``.
        options: JSON values for its config model; omitted options keep their defaults.

    Raises:
        InvalidInputError: The strategy or an option is unknown, or an option is out of range; the message lists the
            valid ones with types, ranges and defaults.
    """
    if name not in STRATEGIES:
        error = FieldError(f"unknown strategy {name!r}: expected one of {', '.join(STRATEGIES)}", where="strategy")
        raise InvalidInputError(f"{error}.", field_errors=(error,), remedy=did_you_mean(name, STRATEGIES))
    kind = STRATEGIES[name]
    return kind(read_options(f"strategy {name!r}", kind.Config, options, where="strategy_options"))


__all__ = ["STRATEGIES", "build_strategy"]
