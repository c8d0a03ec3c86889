"""Prices of models: the user's table, then the shipped one, which has a date."""

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from speciate.domain.errors import ConfigurationError
from speciate.domain.policy import Price
from speciate.domain.validation import first_mistake

PRICES_VARIABLE: Final = "SPECIATE_PRICES"
"""Variable that names the user's table, a TOML file; see ``price_of``."""

_TABLE: Final = TypeAdapter(dict[str, Price])


@dataclass(frozen=True)
class FoundPrice:
    price: Price
    """US dollars per million tokens."""
    origin: str


def price_of(provider: str, model: str) -> FoundPrice | None:
    """Return the price of a provider's model; None if no table lists it.

    The user's table is the file that ``SPECIATE_PRICES`` names. It maps ``MODEL`` or ``PROVIDER/MODEL`` to prices::

        "openai/gpt-5.4" = { input = 2.5, output = 15.0 }
    """
    own = os.environ.get(PRICES_VARIABLE)
    if own:
        table = _read_own(Path(own))
        if (price := table.get(f"{provider}/{model}", table.get(model))) is not None:
            return FoundPrice(price, f"from {own}")
    dated, shipped = _shipped()
    price = shipped.get(f"{provider}/{model}")
    return None if price is None else FoundPrice(price, f"shipped table of {dated}")


def _read_own(path: Path) -> dict[str, Price]:
    try:
        return _TABLE.validate_python(tomllib.loads(path.expanduser().read_text(encoding="utf-8")))
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ValidationError as error:
        problem = ": ".join(first_mistake(error))
    except (ValueError, RuntimeError) as error:  # not TOML, not UTF-8, or below a home that is not known
        problem = str(error)
    raise ConfigurationError(
        f"the table of prices {path} ({PRICES_VARIABLE}) cannot be read: {problem}.",
        remedy='Expected lines such as "openai/gpt-5.4" = { input = 2.5, output = 15.0 }.',
    )


@cache
def _shipped() -> tuple[str, dict[str, Price]]:
    table: dict[str, Any] = tomllib.loads(
        files("speciate.policies").joinpath("prices.toml").read_text(encoding="utf-8")
    )
    dated = str(table.pop("date"))
    table.pop("source")
    return dated, {
        f"{provider}/{model}": Price(input=price[0], output=price[1])
        for provider, models in table.items()
        for model, price in models.items()
    }
