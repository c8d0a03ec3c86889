"""The strategies. A new one is one file, one test class and one line in ``STRATEGIES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from pydantic import ValidationError

from speciate.domain.errors import Flaw, InvalidInputError
from speciate.domain.values import canonical_json
from speciate.search.strategies.best_of_n import BestOfN
from speciate.search.strategies.islands_map_elites import IslandsMapElites
from speciate.search.strategy import Strategy

STRATEGIES: dict[str, type[BestOfN] | type[IslandsMapElites]] = {
    BestOfN.name: BestOfN,
    IslandsMapElites.name: IslandsMapElites,
}


def build_strategy(name: str, options: Mapping[str, Any]) -> Strategy:
    """Return the strategy with these options.

    Raises:
        InvalidInputError: There is no such strategy, or an option is not valid; the message lists the valid ones.
    """
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        flaw = Flaw(f"unknown strategy {name!r}: expected one of {known}", where="strategy")
        raise InvalidInputError(f"There is no strategy {name!r}.", flaws=(flaw,), remedy=f"Choose one of {known}.")
    return _build(name, canonical_json(dict(options)))


@lru_cache(maxsize=256)
def _build(name: str, options: str) -> Strategy:
    kind = STRATEGIES[name]
    try:
        config = kind.Config.model_validate_json(options)
    except ValidationError as error:
        flaws = tuple(
            Flaw(each["msg"], where=".".join(["strategy_options", *map(str, each["loc"])]))
            for each in error.errors(include_url=False, include_input=False)
        )
        raise InvalidInputError(
            f"The options of {name!r} are not valid.", flaws=flaws, remedy=f"Options: {describe_options(name)}."
        ) from None
    make = cast("Callable[[Any], Strategy]", kind)
    return make(config)


def describe_options(name: str) -> str:
    """Return the options of a strategy with types, defaults and ranges, in one line."""
    return (
        "; ".join(
            f"{option} ({_type(schema)}, default {schema.get('default')!r})"
            for option, schema in STRATEGIES[name].Config.model_json_schema().get("properties", {}).items()
        )
        or "none"
    )


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    span = f" from {low} to {high}" if low is not None and high is not None else ""
    return f"{schema.get('type', 'value')}{span}"
