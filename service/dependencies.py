"""What routes are handed: the parts that the application opened, and the parameters that many routes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, cast

from anyio import CapacityLimiter
from fastapi import Depends, Query, Request

from service.doorkeeper import Doorkeeper
from service.metrics import Meter
from service.owners import Owners
from service.principal import principal_of
from service.sse import EventHub
from speciate.settings import Settings
from speciate.storage.cursors import MAX_LIMIT
from speciate.storage.stores import Stores

_PINGS = 4


@dataclass(frozen=True)
class Parts:
    """What one process of the API consists of.

    Attributes:
        settings: The effective settings.
        stores: The stores, of all projects: routes get theirs by ``StoresDep``.
        hub: The open streams of events.
        doorkeeper: Knows who asks.
        owners: Knows whose ids are.
        meter: What this process counts.
        pings: Threads in which policies are asked: a slow endpoint must not hold those that answer requests.
    """

    settings: Settings
    stores: Stores
    hub: EventHub
    doorkeeper: Doorkeeper
    owners: Owners
    meter: Meter
    pings: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_PINGS))


def parts_of(request: Request) -> Parts:
    """Return the parts of the process that a request came to."""
    return cast("Parts", request.app.state.parts)


# These are asynchronous because FastAPI would otherwise hand each of them to a thread.
async def _parts(request: Request) -> Parts:
    return parts_of(request)


# Nor do they depend on each other: FastAPI's way from one to the next costs more than what they do.
async def _stores(request: Request) -> Stores:
    return parts_of(request).stores.within(principal_of(request).project_id)


PartsDep = Annotated[Parts, Depends(_parts)]
StoresDep = Annotated[Stores, Depends(_stores)]

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="most items of the page")]
Cursor = Annotated[
    str | None, Query(max_length=2000, description="`next_cursor` of the page before, unchanged; opaque")
]
