"""Route for the events of a run: JSON pages, or a live stream of server-sent events."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request, Response

from service.api.schemas import RunId
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.streams import EVENT_STREAM
from service.strict_json import StrictRoute
from speciate.domain.errors import invalid_field
from speciate.schema.base import Page
from speciate.schema.runs import EventRecord
from speciate.storage import cursors
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["run results"], route_class=StrictRoute)

After = Annotated[int, Query(ge=0, lt=2**63, description="Sequence number of the last event to skip.")]
LastEventId = Annotated[str | None, Header(description="`id` of the last event received. Overrides `after`.")]


@router.get(
    "/events",
    response_model=Page[EventRecord],
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "A page or a stream."}},
)
async def list_events(
    request: Request,
    run_id: RunId,
    app_state: AppStateDep,
    stores: StoresDep,
    after: After = 0,
    limit: Limit = 500,
    cursor: Cursor = None,
    last_event_id: LastEventId = None,
) -> Page[EventRecord] | Response:
    """Return the events of a run in order.

    With `Accept: text/event-stream`, events arrive as they happen: `id` is the sequence number of the event, `event`
    its kind and `data` the event as JSON. `Last-Event-ID` resumes without loss or repetition. Comments keep a silent
    connection open. `event: end` follows the last event of a run.
    """
    if EVENT_STREAM in request.headers.get("accept", ""):
        return await app_state.hub.watch(run_id, _position(last_event_id, after))
    start = cursors.decode(cursor, [int])[0] if cursor else after
    return await to_thread.run_sync(_page, stores, run_id, start, limit)


def _page(stores: Stores, run_id: RunId, after: int, limit: int) -> Page[EventRecord]:
    events = stores.queries.events(run_id, after=after, limit=limit + 1)
    return cursors.page(events, limit, lambda event: event, lambda event: [event.seq])


def _position(last_event_id: str | None, after: int) -> int:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise invalid_field("The stream position", "Last-Event-ID", "expected the id of an event, which is a number")
    return int(last_event_id)
