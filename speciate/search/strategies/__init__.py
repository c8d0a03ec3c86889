"""How a population can be searched: one file for each strategy, and one line in ``STRATEGIES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from speciate.domain.errors import Flaw, InvalidInputError
from speciate.domain.options import read_options
from speciate.search.strategies.best_of_n import BestOfN
from speciate.search.strategies.islands_map_elites import IslandsMapElites
from speciate.search.strategy import Strategy

STRATEGIES: Final[dict[str, type[BestOfN] | type[IslandsMapElites]]] = {
    "best_of_n": BestOfN,
    "islands_map_elites": IslandsMapElites,
}
"""The strategies by the name that a run gives."""


def build_strategy(name: str, options: Mapping[str, Any]) -> Strategy:
    """Return the strategy with these options.

    Args:
        name: A key of ``STRATEGIES``.
        options: JSON values for its config model; what is left out keeps its default.

    Raises:
        InvalidInputError: There is no such strategy, or an option is unknown or out of range; the message lists the
            valid ones with types, ranges and defaults.
    """
    if name not in STRATEGIES:
        flaw = Flaw(f"there is no {name!r}: expected one of {', '.join(STRATEGIES)}", where="strategy")
        raise InvalidInputError(f"{flaw}.", flaws=(flaw,))
    return _build(STRATEGIES[name], name, options)


def _build(kind: type[BestOfN] | type[IslandsMapElites], name: str, options: Mapping[str, Any]) -> Strategy:
    # Each class takes its own config model, which a union of classes cannot express.
    make: Any = kind
    strategy: Strategy = make(read_options(f"strategy {name!r}", kind.Config, options, where="strategy_options"))
    return strategy


__all__ = ["STRATEGIES", "build_strategy"]
