"""What pages are handed: the stores, the columns and figures that this process keeps, and its live views."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Self, cast

from fastapi import Depends, Request

from service.dashboard.charts import ChartCache
from service.dashboard.columns import ColumnCache
from service.dashboard.live import Live
from speciate.storage.overview import Overview
from speciate.storage.plane import Plane
from speciate.storage.series import Series


@dataclass(frozen=True)
class Deck:
    """What the pages of one process consist of; all but the stores can be lost at any time.

    Attributes:
        plane: The stores.
        overview: Questions across runs.
        columns: Candidates as columns.
        charts: Figures as they are sent.
        live: Streams of what changes.
    """

    plane: Plane
    overview: Overview
    columns: ColumnCache
    charts: ChartCache = field(default_factory=ChartCache)
    live: Live = field(default_factory=Live)

    @classmethod
    def over(cls, plane: Plane) -> Self:
        """Return a deck over stores."""
        return cls(plane, Overview(plane.engine), ColumnCache(Series(plane.engine)))


# Asynchronous because FastAPI would otherwise hand it to a thread.
async def _deck(request: Request) -> Deck:
    return cast("Deck", request.app.state.deck)


DeckDep = Annotated[Deck, Depends(_deck)]
