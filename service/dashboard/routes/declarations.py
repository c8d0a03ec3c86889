"""The pages and actions that tournaments and campaigns share."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.charts import Chart, Figure, add_figure_routes
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.forms import FormDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import Text, Word
from speciate.domain.declaration import VERBS
from speciate.domain.errors import NotFoundError
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores

_LIMIT: Final = 60


def add_declaration_routes(
    router: APIRouter,
    kind: str,
    store_of: Callable[[Stores], DeclarationStore[Any, Any]],
    revision_of: Callable[[Any], str],
    context_of: Callable[[DashboardContext, Any, str], dict[str, Any]],
    charts_of: Callable[[DashboardContext, Any, bool], Sequence[Chart]],
) -> None:
    """Add list, page, live part, figures and actions of a ``tournament`` or ``campaign`` after the router's own routes.

    ``revision_of`` returns a text that changes with the data of a record's figures, ``context_of`` the template values
    of a tab, ``charts_of`` the charts, on request for a narrow screen.
    """

    @router.get("")
    def list_records(request: Request, dashboard: DashboardDep, cursor: Text = "") -> Response:
        records = store_of(dashboard.stores).list(limit=_LIMIT, cursor=cursor or None)
        older = records.next_cursor and address(f"/{kind}s", cursor=records.next_cursor)
        return page(request, f"{kind}s.html", records=records.items, older=older)

    @router.get("/{name}")
    def show(request: Request, name: str, dashboard: DashboardDep, tab: Word = "") -> Response:
        record = store_of(dashboard.stores).get(name)
        context = {"record": record, "revision": revision_of(record), **context_of(dashboard, record, tab)}
        # A running declaration may soon fill an empty chart.
        charts = [chart for chart in charts_of(dashboard, record, False) if not (chart.empty and record.state.ended)]
        return page(request, f"{kind}.html", charts=charts, **context)

    @router.get("/{name}/live")
    async def watch(name: str, dashboard: DashboardDep, tab: Word = "", seen: Seen = "") -> StreamingResponse:
        def part() -> LivePart:
            record = store_of(dashboard.stores).get(name)
            html = fragment(f"{kind}_live.html", record=record, **context_of(dashboard, record, tab))
            return LivePart(html, revision_of(record), final=record.state.ended)

        # An unknown name is rejected before the response begins.
        await to_thread.run_sync(store_of(dashboard.stores).get, name)
        return dashboard.watch(f"{kind} {name} {tab}", part, seen)

    @router.post("/{name}/{verb}")
    def move(name: str, verb: str, form: FormDep, dashboard: DashboardDep) -> Response:
        if verb not in VERBS:
            raise NotFoundError(f"{verb[:40]!r} is not an action of a {kind}: expected {', '.join(VERBS)}.")
        store = store_of(dashboard.stores)
        record = store.get(name)
        store.move(record.id, VERBS[verb], form.text("reason") or None)
        return RedirectResponse(f"/{kind}s/{record.slug}", 303)

    def figure(name: str, chart: str, dashboard: DashboardDep, narrow: bool = False) -> Figure:
        record = store_of(dashboard.stores).get(name)

        def draw() -> Chart:
            charts = {each.name: each for each in charts_of(dashboard, record, narrow)}
            if chart not in charts:
                raise NotFoundError(f"a {kind} has no figure {chart[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
            return charts[chart]

        return Figure((kind, record.id, revision_of(record), chart, narrow), draw, f"{kind}-{record.slug}-{chart}")

    add_figure_routes(router, "/{name}/figures/{chart}", figure)
