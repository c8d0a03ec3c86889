"""The strategies that runs may use, straight from the dict that holds them."""

from __future__ import annotations

from fastapi import APIRouter

from speciate.ports.records.base import Page
from speciate.ports.records.runs import StrategyRecord
from speciate.search.strategies import STRATEGIES

router = APIRouter(prefix="/v1/strategies", tags=["runs"])


@router.get("")
def list_strategies() -> Page[StrategyRecord]:
    """List the strategies with the JSON schemas of their options."""
    return Page[StrategyRecord](
        items=tuple(
            StrategyRecord(
                name=name,
                description=(strategy.__doc__ or "").strip().partition("\n")[0],
                options=strategy.Config.model_json_schema(),
            )
            for name, strategy in STRATEGIES.items()
        )
    )
