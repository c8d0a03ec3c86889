"""Tournaments: the list, one with what it says, and two of its entrants beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.charts import Chart, Table, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.tournament import differences_chart, reach_chart, standings_chart
from service.dashboard.forms import FormDep
from service.dashboard.live import LivePart
from service.dashboard.pages import address, fragment, page
from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import NotFoundError
from speciate.ports.records.declarations import TournamentRecord
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.models import Comparison, MatrixRow, Report

router = APIRouter(include_in_schema=False, prefix="/tournaments")

MAX_ROWS: Final = 300
_LIMIT: Final = 60
_DRAWN: Final = frozenset({"design", "standings", "comparisons"})
"""Tables that stand at places of their own."""

_ENDED: Final = frozenset({DeclarationState.COMPLETED, DeclarationState.CANCELLED})
_Entrant = Annotated[str, Query(max_length=80)]
_GOALS: Final = {
    "pause": DeclarationState.PAUSED,
    "resume": DeclarationState.RUNNING,
    "cancel": DeclarationState.CANCELLED,
}


@router.get("")
def list_tournaments(
    request: Request, dashboard: DashboardDep, cursor: Annotated[str, Query(max_length=2000)] = ""
) -> Response:
    """Show tournaments, newest first."""
    found = dashboard.stores.tournaments.list(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/tournaments", cursor=found.next_cursor)
    return page(request, "tournaments.html", tournaments=found.items, older=older)


@router.get("/{name}")
def show_tournament(request: Request, name: str, dashboard: DashboardDep) -> Response:
    """Show a tournament: who stands where, whether differences are real, and everything these rest on."""
    record = _record(dashboard, name)
    found = _charts(dashboard.report(record)).values()
    # Of one that goes on, what has nothing to show yet may have it soon.
    charts = [chart for chart in found if not chart.empty or record.state not in _ENDED]
    return page(request, "tournament.html", **_shown(dashboard, record), charts=charts)


@router.get("/{name}/live")
async def watch_tournament(
    name: str, dashboard: DashboardDep, seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Send how it stands whenever that changes."""
    await to_thread.run_sync(_record, dashboard, name)  # an unknown one is refused before the answer begins
    part = _part(dashboard, name, lambda record: fragment("tournament_live.html", **_shown(dashboard, record)))
    return dashboard.watch(f"tournament {name}", part, run_id=None, seen=seen)


@router.get("/{name}/pair")
def show_pair(request: Request, name: str, dashboard: DashboardDep, a: _Entrant = "", b: _Entrant = "") -> Response:
    """Show two entrants beside each other: what each reached that the other did not."""
    return page(request, "pair.html", **_pair(dashboard, _record(dashboard, name), a, b))


@router.get("/{name}/pair/live")
async def watch_pair(
    name: str, dashboard: DashboardDep, a: _Entrant = "", b: _Entrant = "", seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Send how two entrants compare whenever that changes."""
    await to_thread.run_sync(_record, dashboard, name)
    part = _part(dashboard, name, lambda record: fragment("pair_live.html", **_pair(dashboard, record, a, b)))
    return dashboard.watch(f"pair {name} {a} {b}", part, run_id=None, seen=seen)


@router.get("/{name}/matrix.csv")
def get_matrix(name: str, dashboard: DashboardDep) -> Response:
    """Send the matrix: runs that reached the target, of how many."""
    record = _record(dashboard, name)
    matrix = dashboard.stores.tournaments.results.matrix(record)
    rows = [[row.problem, *(f"{s}/{n}" for s, n in zip(row.successes, row.runs, strict=True))] for row in matrix.rows]
    return download(Table(("problem", *matrix.entrants), rows), f"tournament-{record.slug}-matrix")


@router.get("/{name}/figures/{figure}.json")
def get_figure(request: Request, name: str, figure: str, dashboard: DashboardDep, narrow: bool = False) -> Response:
    """Send a figure of a tournament as Plotly's JSON."""
    record = _record(dashboard, name)
    key = ("tournament", record.id, record.state, record.ended, len(record.amendments), figure, narrow)
    return dashboard.charts.respond(request, key, lambda: _chart(dashboard.report(record), figure, narrow=narrow))


@router.get("/{name}/figures/{figure}.csv")
def get_figure_data(name: str, figure: str, dashboard: DashboardDep) -> Response:
    """Send what a figure shows as a file."""
    record = _record(dashboard, name)
    return download(_chart(dashboard.report(record), figure).table, f"tournament-{record.slug}-{figure}")


@router.post("/{name}/{verb}")
def steer(name: str, verb: str, form: FormDep, dashboard: DashboardDep) -> Response:
    """Pause, resume or cancel it."""
    if verb not in _GOALS:
        raise NotFoundError(f"a tournament cannot be asked to {verb[:40]!r}.")
    record = _record(dashboard, name)
    dashboard.stores.tournaments.move(record.id, _GOALS[verb], form.text("reason")[:2000] or None)
    return RedirectResponse(f"/tournaments/{record.slug}", 303)


def _record(dashboard: DashboardContext, name: str) -> TournamentRecord:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no tournament has such a name.")
    return dashboard.stores.tournaments.get(name)


def _part(dashboard: DashboardContext, name: str, show: Callable[[TournamentRecord], str]) -> Callable[[], LivePart]:
    """Return what renders a part of a tournament; it changes when one of its runs ends, not with every commit."""
    held: dict[tuple[object, ...], LivePart] = {}

    def render() -> LivePart:
        record = _record(dashboard, name)
        key = (record.state, record.reason, record.started, record.ended, len(record.amendments))
        if key not in held:
            held.clear()
            held[key] = LivePart(show(record), str(record.ended), final=record.state in _ENDED)
        return held[key]

    return render


def _shown(dashboard: DashboardContext, record: TournamentRecord) -> dict[str, Any]:
    report = dashboard.report(record)
    tables = {section.key: section for section in sections(report)}
    return {
        "t": record,
        "report": report,
        "verdicts": [(verdict(c), c) for c in report.standings.comparisons],
        "tables": tables,
        "others": [section for key, section in tables.items() if key not in _DRAWN | {"matrix"}],
        "most": MAX_ROWS,
    }


def _pair(dashboard: DashboardContext, record: TournamentRecord, a: str, b: str) -> dict[str, Any]:
    report = dashboard.report(record)
    names = report.matrix.entrants
    a = a if a in names else names[-1]
    b = b if b in names else next(each for each in names if each != a)
    return {
        "t": record,
        "report": report,
        "a": a,
        "b": b,
        "comparison": _comparison(report, a, b),
        "standing": {s.entrant: s for s in report.standings.standings},
        "rows": _pair_rows(report.matrix.rows, names.index(a), names.index(b)),
        "most": MAX_ROWS,
    }


def _charts(report: Report, *, narrow: bool = False) -> dict[str, Chart]:
    found = (
        standings_chart(report.standings.standings, narrow=narrow),
        differences_chart(report.standings.comparisons, report.standings.metric.replace("_", " "), narrow=narrow),
        reach_chart(report.reached),
    )
    return {chart.name: chart for chart in found}


def _chart(report: Report, name: str, *, narrow: bool = False) -> Chart:
    charts = _charts(report, narrow=narrow)
    if name not in charts:
        raise NotFoundError(f"a tournament has no figure {name[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
    return charts[name]


def _comparison(report: Report, a: str, b: str) -> Comparison | None:
    return next((c for c in report.standings.comparisons if {c.a, c.b} == {a, b}), None)


def _pair_rows(rows: tuple[MatrixRow, ...], a: int, b: int) -> dict[str, list[tuple[str, str, str]]]:
    """Return problems by who reached them, with successes of each as ``2/5``."""
    kinds = ("only-a", "only-b", "both", "neither", "not-tried")
    found: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in kinds}
    for row in rows:
        by_a, by_b = row.successes[a] > 0, row.successes[b] > 0
        kind = "both" if by_a and by_b else "only-a" if by_a else "only-b" if by_b else "neither"
        # Whose run has not ended has not failed.
        kind = kind if row.runs[a] and row.runs[b] else "not-tried"
        texts = (f"{row.successes[i]}/{row.runs[i]}" for i in (a, b))
        found[kind].append((row.problem, *texts))  # type: ignore[arg-type]
    return found
