"""The search strategies. A new strategy is one file, with an import and a line in ``STRATEGIES``."""

from collections.abc import Mapping
from typing import Any, Final

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.run import SearchOptions
from speciate.domain.suggestions import did_you_mean
from speciate.domain.validation import read_options
from speciate.search.strategies.adaptive_evolution import AdaptiveEvolution
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
    "adaptive_evolution": AdaptiveEvolution,
}
"""Strategies by name."""


def build_strategy(name: str, options: Mapping[str, Any]) -> Strategy:
    """Return a strategy with the given options; the error for a wrong one lists types, ranges and defaults."""
    if name not in STRATEGIES:
        error = FieldError(f"unknown strategy {name!r}: expected one of {', '.join(STRATEGIES)}", where="strategy")
        raise InvalidInputError(f"{error}.", field_errors=(error,), remedy=did_you_mean(name, STRATEGIES))
    kind = STRATEGIES[name]
    try:
        return kind(read_options(f"strategy {name!r}", kind.Config, options, where="strategy_options"))
    except InvalidInputError as error:
        if elsewhere := _of_others(kind, options):
            raise InvalidInputError(str(error), field_errors=error.field_errors, remedy=elsewhere) from None
        raise


def strategy_of(spec: SearchOptions) -> Strategy:
    return build_strategy(spec.strategy, spec.strategy_options)


def _of_others(kind: type[Strategy], options: Mapping[str, Any]) -> str:
    """Return which strategies have the first option that this one lacks; empty if none has it."""
    unknown = next((option for option in options if option not in kind.Config.model_fields), "")
    owners = [name for name, other in STRATEGIES.items() if unknown in other.Config.model_fields]
    return f"{unknown!r} is an option of {' and '.join(owners)}: name the strategy, too." if owners else ""
