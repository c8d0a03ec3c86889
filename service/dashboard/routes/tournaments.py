"""Pages of tournaments: the form, the list, the report, two entrants side by side, and the actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.dashboard.charts import Chart, Table, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import parse_number
from service.dashboard.figures.tournament import differences_chart, reach_chart, standings_chart
from service.dashboard.forms import FormDep, FormErrors, form_errors, form_page, idempotency_key, require_confirmation
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from service.dashboard.parameters import Text, Word
from service.dashboard.policy_pairs import COMPARED, compared
from service.dashboard.routes.declarations import (
    MAX_REASON_LENGTH,
    PAGE_SIZE,
    chart_named,
    goal_of,
    list_page,
    shown_charts,
)
from service.dashboard.routes.figures import Figure, add_figure_routes
from speciate.domain.errors import SpeciateError
from speciate.domain.tournament import Metric, StoppingRule, Tournament
from speciate.runs.declarations import pin_tournament
from speciate.schema.declarations import TournamentRecord
from speciate.search.strategies import STRATEGIES
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.method_tables import method_verdict
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.methods import methods_power
from speciate.tournaments.report.models import MatrixRow

router = APIRouter(include_in_schema=False, prefix="/tournaments")

MAX_ROWS: Final = 300
_PLACED: Final = frozenset({"design", "standings", "methods", "comparisons", "matrix"})
"""Tables with a place of their own on the page."""
FORM_ENTRANTS: Final = 16
"""Rows of entrants: two methods with eight training runs each."""

_SHOWN_ENTRANTS: Final = 6
"""Rows that are not folded."""

_MAX_PARSED_SEEDS: Final = 1001
"""One more than a tournament may have, so that validation reports the excess."""

_SEED_PART: Final = re.compile(r"[^\s,]+")
_SEED_RANGE: Final = re.compile(r"^(\d{1,18})\s*[-–]\s*(\d{1,18})$")
_ENTRANT_FIELDS: Final = ("name", "policy", "mutator", "strategy", "method", "training_seed")


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    return _page(request, dashboard, dict(request.query_params), None)


@router.post("")
def declare_tournament(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    values, store = form.fields, dashboard.stores.tournaments
    try:
        body = _read_form(values)
        declared = Tournament.model_validate(body)
        pinned = pin_tournament(declared, dashboard.stores.catalog)
        require_confirmation(values, body["budget"], pinned.doubt)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=idempotency_key(values))
    except (SpeciateError, ValidationError) as error:
        return _page(request, dashboard, values, form_errors(error))
    return RedirectResponse(f"/tournaments/{store.get(declared_id).slug}", 303)


@router.get("")
def list_tournaments(request: Request, dashboard: DashboardDep, cursor: Text = "") -> Response:
    records = dashboard.stores.tournaments.list(limit=PAGE_SIZE, cursor=cursor or None)
    return list_page(request, "tournament", records)


@router.get("/{name}")
def show_tournament(request: Request, name: str, dashboard: DashboardDep) -> Response:
    record = dashboard.stores.tournaments.get(name)
    return page(
        request,
        "tournament.html",
        record=record,
        charts=shown_charts(_charts(dashboard, record), record),
        revision=_revision(record),
        opened=request.query_params.getlist("open"),  # folded sections; "all" opens each
        **_context(dashboard, record),
    )


@router.get("/{name}/live")
async def watch_tournament(name: str, dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    def render(record: TournamentRecord) -> str:
        # The page's script keeps open sections open.
        return fragment("tournament_live.html", record=record, opened=(), **_context(dashboard, record))

    return await _watch(dashboard, name, name, seen, render)


@router.get("/{name}/pair")
def show_pair(request: Request, name: str, dashboard: DashboardDep, a: Word = "", b: Word = "") -> Response:
    return page(request, "pair.html", **_pair_context(dashboard, dashboard.stores.tournaments.get(name), a, b))


@router.get("/{name}/pair/live")
async def watch_pair(
    name: str, dashboard: DashboardDep, a: Word = "", b: Word = "", seen: Seen = ""
) -> StreamingResponse:
    def render(record: TournamentRecord) -> str:
        return fragment("pair_live.html", **_pair_context(dashboard, record, a, b))

    return await _watch(dashboard, name, f"pair {name} {a} {b}", seen, render)


@router.get("/{name}/matrix.csv")
def download_matrix(name: str, dashboard: DashboardDep) -> Response:
    """Return the unlock matrix as CSV: runs that reached the target, of the ended ones."""
    record = dashboard.stores.tournaments.get(name)
    matrix = dashboard.stores.tournaments.results.matrix(record)
    rows = [[row.problem, *(f"{s}/{n}" for s, n in zip(row.successes, row.runs, strict=True))] for row in matrix.rows]
    return download(Table(("problem", *matrix.entrants), rows), f"tournament-{record.slug}-matrix")


@router.post("/{name}/{verb}")
def move_tournament(name: str, verb: str, form: FormDep, dashboard: DashboardDep) -> Response:
    goal, record = goal_of(verb, "tournament"), dashboard.stores.tournaments.get(name)
    dashboard.stores.tournaments.move(record.id, goal, form.text("reason")[:MAX_REASON_LENGTH] or None)
    return RedirectResponse(f"/tournaments/{record.slug}", 303)


def _figure(name: str, chart: str, dashboard: DashboardDep, narrow: bool = False) -> Figure:
    record = dashboard.stores.tournaments.get(name)
    key = ("tournament", record.id, _revision(record), chart, narrow)
    return Figure(
        key,
        lambda: chart_named(_charts(dashboard, record, narrow=narrow), "tournament", chart),
        f"tournament-{record.slug}-{chart}",
    )


add_figure_routes(router, "/{name}/figures/{chart}", _figure)


async def _watch(
    dashboard: DashboardContext, name: str, key: str, seen: str, render: Callable[[TournamentRecord], str]
) -> StreamingResponse:
    """Stream a part that is rendered again when a run starts or ends, not with every commit."""
    # An unknown name is rejected before the response begins.
    await to_thread.run_sync(dashboard.stores.tournaments.get, name)
    last: tuple[object, LivePart] | None = None

    def part() -> LivePart:
        nonlocal last
        record = dashboard.stores.tournaments.get(name)
        state = (record.state, record.reason, record.started, record.ended, len(record.amendments))
        if last is None or last[0] != state:
            last = state, LivePart(render(record), _revision(record), final=record.state.ended)
        return last[1]

    return dashboard.watch(f"tournament {key}", part, seen)


def _revision(record: TournamentRecord) -> str:
    """Return a text that changes with the data of the figures, when a run ends."""
    return f"{record.state}-{record.ended}-{len(record.amendments)}"


def _context(dashboard: DashboardContext, record: TournamentRecord) -> dict[str, Any]:
    report = dashboard.report(record)
    tables = {section.key: section for section in sections(report)}
    return {
        "report": report,
        "conclusion": conclusion(report),
        "verdicts": [(verdict(c), c) for c in report.standings.comparisons],
        "method_verdicts": [(method_verdict(c), c) for c in report.standings.methods],
        "power": methods_power(record.declaration),
        "tables": tables,
        "others": [section for key, section in tables.items() if key not in _PLACED],
        "most": MAX_ROWS,
    }


def _charts(dashboard: DashboardContext, record: TournamentRecord, *, narrow: bool = False) -> Sequence[Chart]:
    report = dashboard.report(record)
    metric = report.standings.metric.replace("_", " ")
    return (
        standings_chart(report.standings.standings, narrow=narrow),
        differences_chart(report.standings.comparisons, metric, narrow=narrow),
        reach_chart(report.reached),
    )


def _pair_context(dashboard: DashboardContext, record: TournamentRecord, a: str, b: str) -> dict[str, Any]:
    """Return the template values of two entrants side by side; unknown names select other entrants."""
    report = dashboard.report(record)
    names = report.matrix.entrants
    a = a if a in names else names[-1]
    b = b if b in names else next(each for each in names if each != a)
    return {
        "record": record,
        "report": report,
        "a": a,
        "b": b,
        "revision": _revision(record),
        "comparison": next((c for c in report.standings.comparisons if {c.a, c.b} == {a, b}), None),
        "standing": {s.entrant: s for s in report.standings.standings},
        "rows": pair_rows(report.matrix.rows, names.index(a), names.index(b)),
        "most": MAX_ROWS,
    }


def pair_rows(rows: Sequence[MatrixRow], a: int, b: int) -> dict[str, list[tuple[str, ...]]]:
    """Group problems by which of two entrants reached them, with the successes of each such as ``2/5``."""
    groups: dict[str, list[tuple[str, ...]]] = {group: [] for group in COMPARED}
    for row in rows:
        # An entrant without an ended run has not failed.
        group = compared(*(row.successes[i] if row.runs[i] else None for i in (a, b)))
        groups[group].append((row.problem, *(f"{row.successes[i]}/{row.runs[i]}" for i in (a, b))))
    return groups


def _page(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    folded = range(_SHOWN_ENTRANTS, FORM_ENTRANTS)
    return form_page(
        request,
        dashboard.stores.catalog,
        "tournament",
        values,
        errors,
        rows=range(FORM_ENTRANTS),
        folded=folded,
        unfold=any(values.get(f"{part}{row}") for part in ("name", "policy") for row in folded),
        strategies=list(STRATEGIES),
        metrics=[metric.value for metric in Metric],
        rules=[rule.value for rule in StoppingRule],
    )


def _read_form(values: Mapping[str, str]) -> dict[str, Any]:
    text = {name: value.strip() for name, value in values.items()}
    entrants = _read_entrants(text)
    return {
        "slug": text.get("slug", ""),
        "title": text.get("title", ""),
        "problems": text.get("problems", "").split(),
        "entrants": entrants,
        "baseline": text.get("baseline") or (entrants[0].get("name", "") if entrants else ""),
        "seeds": parse_seeds(text.get("seeds", "")),
        "budget": {n: parse_number("integer", text[n]) for n in ("evaluations", "tokens") if text.get(n)},
        **{name: text[name] for name in ("target", "metric", "stopping") if text.get(name)},
    }


def _read_entrants(text: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = ({part: text.get(f"{part}{row}", "") for part in _ENTRANT_FIELDS} for row in range(FORM_ENTRANTS))
    return [
        {
            part: parse_number("integer", value) if part == "training_seed" else value
            for part, value in entrant.items()
            if value
        }
        for entrant in rows
        if entrant["name"] or entrant["policy"]
    ]


def parse_seeds(text: str) -> list[Any]:
    """Parse seeds such as ``0-7, 12``. Other text is kept, for validation to report.

    At most one seed more than a tournament may have is returned, since a short range may name any number of them.
    """
    seeds: list[Any] = []
    for part in _SEED_PART.finditer(text):
        if span := _SEED_RANGE.match(part[0]):
            first, last = int(span[1]), int(span[2])
            seeds += range(first, min(last + 1, first + _MAX_PARSED_SEEDS - len(seeds)))
        else:
            seeds.append(parse_number("integer", part[0]))
        if len(seeds) >= _MAX_PARSED_SEEDS:
            break
    return seeds
