"""Pages that tournaments and campaigns share: the list, one declaration live, its figures, its form and its verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import uuid4

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.dashboard.charts import Chart, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.live import LivePart
from service.dashboard.pages import address, fragment, page
from speciate.domain.declaration import VERBS, Declaration
from speciate.domain.errors import NotFoundError, SpeciateError
from speciate.runs.declarations import Versions
from speciate.schema.declarations import DeclarationRecord
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores

D = TypeVar("D", bound=Declaration)
R = TypeVar("R", bound=DeclarationRecord[Any])

_PAGE_SIZE: Final = 60


class DeclarationPages(ABC, Generic[D, R]):
    """Pages of one kind of declaration; a subclass provides its content.

    Args:
        declaration: Type of the declarations.
        store_of: Selects the store.
        pin: Validates a declaration and pins its names to versions.
    """

    def __init__(
        self,
        declaration: type[D],
        store_of: Callable[[Stores], DeclarationStore[D, R]],
        pin: Callable[[D, Versions], D],
    ) -> None:
        self.kind = declaration.kind
        self._declaration = declaration
        self._store_of = store_of
        self._pin = pin

    @abstractmethod
    def context(self, dashboard: DashboardContext, record: R) -> dict[str, Any]:
        """Return the template values of a declaration's page, besides ``record``."""

    @abstractmethod
    def revision(self, record: R) -> str:
        """Return a text that changes with the data of the figures."""

    @abstractmethod
    def live_key(self, record: R) -> object:
        """Return a value that changes with the content of the page."""

    @abstractmethod
    def charts(self, dashboard: DashboardContext, record: R, *, narrow: bool = False) -> Sequence[Chart]:
        """Return the figures of a declaration."""

    @abstractmethod
    def read_form(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a declaration from the form, unvalidated."""

    @abstractmethod
    def form_context(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the template values of the form besides those of every kind."""

    def router(self) -> APIRouter:
        """Return the routes; the caller adds further ones."""
        router = APIRouter(include_in_schema=False, prefix=f"/{self.kind}s")
        # "new" comes before the route that takes a name.
        router.add_api_route("/new", self.show_form, methods=["GET"])
        router.add_api_route("", self.show_list, methods=["GET"])
        router.add_api_route("", self.declare, methods=["POST"])
        router.add_api_route("/{name}", self.show, methods=["GET"])
        router.add_api_route("/{name}/live", self.watch, methods=["GET"])
        router.add_api_route("/{name}/figures/{figure}.json", self.show_figure, methods=["GET"])
        router.add_api_route("/{name}/figures/{figure}.csv", self.download_figure, methods=["GET"])
        router.add_api_route("/{name}/{verb}", self.move, methods=["POST"])
        return router

    def show_list(
        self, request: Request, dashboard: DashboardDep, cursor: Annotated[str, Query(max_length=2000)] = ""
    ) -> Response:
        """Show all declarations, newest first."""
        found = self._store_of(dashboard.stores).list(limit=_PAGE_SIZE, cursor=cursor or None)
        older = found.next_cursor and address(f"/{self.kind}s", cursor=found.next_cursor)
        return page(request, f"{self.kind}s.html", records=found.items, older=older)

    def show(self, request: Request, name: str, dashboard: DashboardDep) -> Response:
        """Show one declaration with its figures."""
        record = self.record(dashboard, name)
        # A running declaration may soon fill an empty figure.
        charts = [chart for chart in self.charts(dashboard, record) if not (chart.empty and record.state.ended)]
        context = {"record": record, "charts": charts, "revision": self.revision(record)}
        context["opened"] = request.query_params.getlist("open")  # folded sections; "all" opens each
        return page(request, f"{self.kind}.html", **context, **self.context(dashboard, record))

    async def watch(
        self, name: str, dashboard: DashboardDep, seen: str = Query("", max_length=100)
    ) -> StreamingResponse:
        """Stream the changing part of a declaration's page."""

        def render(record: R) -> str:
            # The page's script keeps open sections open.
            return fragment(f"{self.kind}_live.html", record=record, opened=(), **self.context(dashboard, record))

        return await self.stream(name, dashboard, name, seen, render)

    async def stream(
        self, name: str, dashboard: DashboardContext, key: str, seen: str, render: Callable[[R], str]
    ) -> StreamingResponse:
        """Stream what ``render`` returns, rendered again whenever ``live_key`` changes.

        Args:
            name: Id or name of the declaration.
            dashboard: The context.
            key: Distinguishes the views of one kind.
            seen: Id of the last frame that the client has.
            render: Returns the HTML of a record.
        """
        await to_thread.run_sync(self.record, dashboard, name)  # an unknown name is rejected before the response begins
        last: list[tuple[object, LivePart]] = []

        def part() -> LivePart:
            record = self.record(dashboard, name)
            live_key = self.live_key(record)
            if not last or last[0][0] != live_key:
                last[:] = [(live_key, LivePart(render(record), self.revision(record), final=record.state.ended))]
            return last[0][1]

        return dashboard.watch(f"{self.kind} {key}", part, run_id=None, seen=seen)

    def show_figure(
        self, request: Request, name: str, figure: str, dashboard: DashboardDep, narrow: bool = False
    ) -> Response:
        """Return a figure as Plotly's JSON."""
        record = self.record(dashboard, name)
        key = (self.kind, record.id, self.revision(record), figure, narrow)
        return dashboard.charts.respond(request, key, lambda: self._chart(dashboard, record, figure, narrow=narrow))

    def download_figure(self, name: str, figure: str, dashboard: DashboardDep) -> Response:
        """Return the data of a figure as CSV."""
        record = self.record(dashboard, name)
        return download(self._chart(dashboard, record, figure).table, f"{self.kind}-{record.slug}-{figure}")

    def move(self, name: str, verb: str, form: FormDep, dashboard: DashboardDep) -> Response:
        """Pause, resume or cancel a declaration."""
        if verb not in VERBS:
            raise NotFoundError(f"{verb[:40]!r} is not an action of a {self.kind}: expected {', '.join(VERBS)}.")
        record = self.record(dashboard, name)
        self._store_of(dashboard.stores).move(record.id, VERBS[verb], form.text("reason")[:2000] or None)
        return RedirectResponse(f"/{self.kind}s/{record.slug}", 303)

    def show_form(self, request: Request, dashboard: DashboardDep) -> Response:
        """Show the form, filled in from the query."""
        return self.form_page(request, dashboard, dict(request.query_params), None)

    def declare(self, request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
        """Create the declaration and redirect to its page, or show the form with the errors."""
        values, store = form.fields, self._store_of(dashboard.stores)
        try:
            given = self.read_form(values)
            declared = self._declaration.model_validate(given)
            pinned = self._pin(declared, dashboard.stores.catalog)
            require_confirmation(values, given.get("budget", given), pinned.doubt)
            declared_id, _ = store.create(
                pinned,
                request_digest=declared.digest,
                # A form that is sent twice creates one declaration.
                idempotency_key=f"form:{values['key'][:100]}" if values.get("key") else None,
            )
        except (SpeciateError, ValidationError) as error:
            return self.form_page(request, dashboard, values, form_errors(error))
        return RedirectResponse(f"/{self.kind}s/{store.get(declared_id).slug}", 303)

    def record(self, dashboard: DashboardContext, name: str) -> R:
        """Return a declaration by id or name; raises ``NotFoundError``."""
        return self._store_of(dashboard.stores).get(name)

    def _chart(self, dashboard: DashboardContext, record: R, name: str, *, narrow: bool = False) -> Chart:
        charts = {chart.name: chart for chart in self.charts(dashboard, record, narrow=narrow)}
        if name not in charts:
            raise NotFoundError(f"a {self.kind} has no figure {name[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
        return charts[name]

    def form_page(
        self, request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
    ) -> Response:
        """Return the form with its values and errors."""
        catalog = dashboard.stores.catalog
        policies = [found.definition for found in catalog.policies(limit=500).items]
        context = {
            "values": values,
            "errors": errors,
            "policies": list(dict.fromkeys(policy.slug for policy in policies)),
            "methods": sorted({policy.training_method for policy in policies if policy.training_method}),
            "sets": [found.slug for found in catalog.problem_sets(limit=100).items],
            "key": values.get("key") or uuid4().hex,
            **self.form_context(values),
        }
        return page(request, f"new_{self.kind}.html", 200 if errors is None else 422, **context)
