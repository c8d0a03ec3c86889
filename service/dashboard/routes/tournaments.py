"""Tournaments: the list, one with what it says, and two of its entrants beside each other."""

from __future__ import annotations

from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.charts import Chart, Table, download
from service.dashboard.deck import Deck, DeckDep
from service.dashboard.figures.tournament import difference_chart, reached_chart, standing_chart
from service.dashboard.forms import FormDep
from service.dashboard.live import Part
from service.dashboard.pages import address, fragment, page
from speciate.domain.errors import NotFoundError
from speciate.domain.tournament import TournamentState
from speciate.ports.records import TournamentRecord
from speciate.tournaments.report import Comparison, MatrixRow, Report
from speciate.tournaments.tables import sections, verdict

router = APIRouter(include_in_schema=False, prefix="/tournaments")

MOST_ROWS: Final = 300
_LIMIT: Final = 60
_DRAWN: Final = frozenset({"design", "standings", "comparisons"})
"""Tables that stand at places of their own."""

_GOALS: Final = {
    "pause": TournamentState.PAUSED,
    "resume": TournamentState.RUNNING,
    "cancel": TournamentState.CANCELLED,
}


@router.get("")
def list_tournaments(request: Request, deck: DeckDep, cursor: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """Show tournaments, newest first."""
    found = deck.plane.tournaments.list(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/tournaments", cursor=found.next_cursor)
    return page(request, "tournaments.html", tournaments=found.items, older=older)


@router.get("/{name}")
def show_tournament(request: Request, name: str, deck: DeckDep) -> Response:
    """Show a tournament: who stands where, whether differences are real, and everything these rest on."""
    record = _record(deck, name)
    report = deck.report(record)
    tables = {section.key: section for section in sections(report)}
    context: dict[str, Any] = {
        "t": record,
        "report": report,
        "verdicts": [(verdict(c), c) for c in report.standings.comparisons],
        "charts": [chart for chart in _charts(report).values() if not chart.empty],
        "tables": tables,
        "others": [section for key, section in tables.items() if key not in _DRAWN | {"matrix"}],
        "most": MOST_ROWS,
    }
    return page(request, "tournament.html", **context)


@router.get("/{name}/live")
async def watch_tournament(name: str, deck: DeckDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send its progress whenever it changes."""
    await to_thread.run_sync(_record, deck, name)  # an unknown one is refused before the answer begins

    def render() -> Part:
        record = _record(deck, name)
        final = record.state in {TournamentState.COMPLETED, TournamentState.CANCELLED}
        return Part(fragment("tournament_live.html", t=record), str(record.ended), final=final)

    return deck.watch(f"tournament {name}", render, run_id=None, seen=seen)


@router.get("/{name}/pair")
def show_pair(
    request: Request,
    name: str,
    deck: DeckDep,
    a: Annotated[str, Query(max_length=80)] = "",
    b: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """Show two entrants beside each other: what each reached that the other did not."""
    record = _record(deck, name)
    report = deck.report(record)
    names = report.matrix.entrants
    a = a if a in names else names[-1]
    b = b if b in names else next(each for each in names if each != a)
    context: dict[str, Any] = {
        "t": record,
        "report": report,
        "a": a,
        "b": b,
        "comparison": _comparison(report, a, b),
        "standing": {s.entrant: s for s in report.standings.standings},
        "rows": _pair_rows(report.matrix.rows, names.index(a), names.index(b)),
        "most": MOST_ROWS,
    }
    return page(request, "pair.html", **context)


@router.get("/{name}/matrix.csv")
def get_matrix(name: str, deck: DeckDep) -> Response:
    """Send the matrix: runs that reached the target, of how many."""
    record = _record(deck, name)
    matrix = deck.plane.tournaments.matrix(record)
    rows = [[row.problem, *(f"{s}/{n}" for s, n in zip(row.successes, row.runs, strict=True))] for row in matrix.rows]
    return download(Table(("problem", *matrix.entrants), rows), f"tournament-{record.slug}-matrix")


@router.get("/{name}/figures/{figure}.json")
def get_figure(request: Request, name: str, figure: str, deck: DeckDep) -> Response:
    """Send a figure of a tournament as Plotly's JSON."""
    record = _record(deck, name)
    key = ("tournament", record.id, record.state, record.ended, len(record.amendments), figure)
    return deck.charts.answer(request, key, lambda: _chart(deck.report(record), figure))


@router.get("/{name}/figures/{figure}.csv")
def get_figure_data(name: str, figure: str, deck: DeckDep) -> Response:
    """Send what a figure shows as a file."""
    record = _record(deck, name)
    return download(_chart(deck.report(record), figure).table, f"tournament-{record.slug}-{figure}")


@router.post("/{name}/{verb}")
def steer(name: str, verb: str, form: FormDep, deck: DeckDep) -> Response:
    """Pause, resume or cancel it."""
    if verb not in _GOALS:
        raise NotFoundError(f"a tournament cannot be asked to {verb[:40]!r}.")
    record = _record(deck, name)
    deck.plane.tournaments.move(record.id, _GOALS[verb], form.text("reason")[:2000] or None)
    return RedirectResponse(f"/tournaments/{record.slug}", 303)


def _record(deck: Deck, name: str) -> TournamentRecord:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no tournament has such a name.")
    return deck.plane.tournaments.get(name)


def _charts(report: Report) -> dict[str, Chart]:
    found = (
        standing_chart(report.standings.standings),
        difference_chart(report.standings.comparisons, report.standings.metric.replace("_", " ")),
        reached_chart(report.reached),
    )
    return {chart.name: chart for chart in found}


def _chart(report: Report, name: str) -> Chart:
    charts = _charts(report)
    if name not in charts:
        raise NotFoundError(f"a tournament has no figure {name[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
    return charts[name]


def _comparison(report: Report, a: str, b: str) -> Comparison | None:
    return next((c for c in report.standings.comparisons if {c.a, c.b} == {a, b}), None)


def _pair_rows(rows: tuple[MatrixRow, ...], a: int, b: int) -> dict[str, list[tuple[str, str, str]]]:
    """Return problems by who reached them, with successes of each as ``2/5``."""
    found: dict[str, list[tuple[str, str, str]]] = {"only-a": [], "only-b": [], "both": [], "neither": []}
    for row in rows:
        by_a, by_b = row.successes[a] > 0, row.successes[b] > 0
        kind = "both" if by_a and by_b else "only-a" if by_a else "only-b" if by_b else "neither"
        texts = (f"{row.successes[i]}/{row.runs[i]}" for i in (a, b))
        found[kind].append((row.problem, *texts))  # type: ignore[arg-type]
    return found
