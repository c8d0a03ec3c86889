"""The part of a form in which a strategy is chosen, with fields for its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from service.dashboard.fields import fields_of, values_of
from speciate.domain.run import RunSpec
from speciate.search.strategies import STRATEGIES

OPTION: Final = "option."
"""Before the name of every option's field."""

_USUAL: Final = str(RunSpec.model_fields["strategy"].default)
_SHOWN: Final = "options_of"


def chosen(given: Mapping[str, str]) -> dict[str, Any]:
    """Return ``strategy`` and its ``strategy_options`` as a declaration has them; an unknown one is refused later."""
    strategy = given.get("strategy", _USUAL).strip()
    options = values_of(STRATEGIES[strategy].Config, OPTION, _own(given, strategy)) if strategy in STRATEGIES else {}
    return {"strategy": strategy, "strategy_options": options}


def shown(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template shows: the strategies, the chosen one and its options."""
    strategy = given.get("strategy", _USUAL)
    strategy = strategy if strategy in STRATEGIES else _USUAL
    return {
        "strategy": strategy,
        "strategies": list(STRATEGIES),
        "about": (STRATEGIES[strategy].__doc__ or "").strip().partition("\n")[0],
        "options": fields_of(STRATEGIES[strategy].Config, OPTION, _own(given, strategy)),
    }


def _own(given: Mapping[str, str], strategy: str) -> Mapping[str, str]:
    """Return the fields without options that were shown for another strategy: names recur, and defaults differ."""
    if given.get(_SHOWN, strategy) == strategy:
        return given
    return {name: value for name, value in given.items() if not name.startswith(OPTION)}
