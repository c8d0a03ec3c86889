"""Pages of tournaments: the report, two entrants side by side, and the form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.charts import Chart, Table, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import parse_number
from service.dashboard.figures.tournament import differences_chart, reach_chart, standings_chart
from service.dashboard.pages import fragment, page
from service.dashboard.routes.declarations import DeclarationPages
from speciate.domain.tournament import Metric, StoppingRule, Tournament
from speciate.runs.declarations import pin_tournament
from speciate.schema.declarations import TournamentRecord
from speciate.search.strategies import STRATEGIES
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.method_tables import method_verdict
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.methods import methods_power
from speciate.tournaments.report.models import MatrixRow

MAX_ROWS: Final = 300
FORM_ENTRANTS: Final = 16
"""Rows of entrants: two methods with eight training runs each."""
_MAX_PARSED_SEEDS: Final = 1001
"""One more than a tournament may have, so that validation reports the excess."""

_PLACED: Final = frozenset({"design", "standings", "methods", "comparisons", "matrix"})
"""Tables with a place of their own on the page."""

_SEED_PART: Final = re.compile(r"[^\s,]+")
_SEED_RANGE: Final = re.compile(r"^(\d{1,18})\s*[-–]\s*(\d{1,18})$")
_SHOWN_ENTRANTS: Final = 6
"""Rows that are not folded."""

_ENTRANT_FIELDS: Final = ("name", "policy", "mutator", "strategy", "method", "training_seed")
_Entrant = Annotated[str, Query(max_length=80)]


class TournamentPages(DeclarationPages[Tournament, TournamentRecord]):
    """Pages of tournaments."""

    def context(self, dashboard: DashboardContext, record: TournamentRecord) -> dict[str, Any]:
        """Return the report with its verdicts and tables."""
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

    def revision(self, record: TournamentRecord) -> str:
        """Return a text that changes when a run ends."""
        return f"{record.state}-{record.ended}-{len(record.amendments)}"

    def live_key(self, record: TournamentRecord) -> object:
        """Return a value that changes when a run starts or ends, not with every commit."""
        return (record.state, record.reason, record.started, record.ended, len(record.amendments))

    def charts(self, dashboard: DashboardContext, record: TournamentRecord, *, narrow: bool = False) -> Sequence[Chart]:
        """Return the standings, the differences and the targets reached."""
        report = dashboard.report(record)
        metric = report.standings.metric.replace("_", " ")
        return (
            standings_chart(report.standings.standings, narrow=narrow),
            differences_chart(report.standings.comparisons, metric, narrow=narrow),
            reach_chart(report.reached),
        )

    def read_form(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a tournament from the form, unvalidated."""
        text = {name: value.strip() for name, value in values.items()}
        entrants = _read_entrants(text)
        limits = {name: parse_number("integer", text[name]) for name in ("evaluations", "tokens") if text.get(name)}
        return {
            "slug": text.get("slug", ""),
            "title": text.get("title", ""),
            "problems": text.get("problems", "").split(),
            "entrants": entrants,
            "baseline": text.get("baseline") or (entrants[0].get("name", "") if entrants else ""),
            "seeds": parse_seeds(text.get("seeds", "")),
            "budget": limits,
            **{name: text[name] for name in ("target", "metric", "stopping") if text.get(name)},
        }

    def form_context(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the rows of entrants and the choices."""
        return {
            "rows": range(FORM_ENTRANTS),
            "folded": range(_SHOWN_ENTRANTS, FORM_ENTRANTS),
            "unfold": any(
                values.get(f"{part}{row}")
                for part in ("name", "policy")
                for row in range(_SHOWN_ENTRANTS, FORM_ENTRANTS)
            ),
            "strategies": list(STRATEGIES),
            "metrics": [metric.value for metric in Metric],
            "rules": [rule.value for rule in StoppingRule],
        }

    def pair_context(self, dashboard: DashboardContext, record: TournamentRecord, a: str, b: str) -> dict[str, Any]:
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
            "revision": self.revision(record),
            "comparison": next((c for c in report.standings.comparisons if {c.a, c.b} == {a, b}), None),
            "standing": {s.entrant: s for s in report.standings.standings},
            "rows": pair_rows(report.matrix.rows, names.index(a), names.index(b)),
            "most": MAX_ROWS,
        }


_PAGES: Final = TournamentPages(Tournament, lambda stores: stores.tournaments, pin_tournament)
router: Final = _PAGES.router()


@router.get("/{name}/pair")
def show_pair(request: Request, name: str, dashboard: DashboardDep, a: _Entrant = "", b: _Entrant = "") -> Response:
    """Show two entrants side by side: the problems that each reached and the other did not."""
    return page(request, "pair.html", **_PAGES.pair_context(dashboard, _PAGES.record(dashboard, name), a, b))


@router.get("/{name}/pair/live")
async def watch_pair(
    name: str, dashboard: DashboardDep, a: _Entrant = "", b: _Entrant = "", seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Stream the changing part of the page of two entrants."""

    def render(record: TournamentRecord) -> str:
        return fragment("pair_live.html", **_PAGES.pair_context(dashboard, record, a, b))

    return await _PAGES.stream(name, dashboard, f"pair {name} {a} {b}", seen, render)


@router.get("/{name}/matrix.csv")
def download_matrix(name: str, dashboard: DashboardDep) -> Response:
    """Return the unlock matrix as CSV: runs that reached the target, of the ended ones."""
    record = _PAGES.record(dashboard, name)
    matrix = dashboard.stores.tournaments.results.matrix(record)
    rows = [[row.problem, *(f"{s}/{n}" for s, n in zip(row.successes, row.runs, strict=True))] for row in matrix.rows]
    return download(Table(("problem", *matrix.entrants), rows), f"tournament-{record.slug}-matrix")


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
    found: list[Any] = []
    for part in _SEED_PART.finditer(text):
        if span := _SEED_RANGE.match(part[0]):
            first, last = int(span[1]), int(span[2])
            found += range(first, min(last + 1, first + _MAX_PARSED_SEEDS - len(found)))
        else:
            found.append(parse_number("integer", part[0]))
        if len(found) >= _MAX_PARSED_SEEDS:
            break
    return found


def pair_rows(rows: Sequence[MatrixRow], a: int, b: int) -> dict[str, list[tuple[str, ...]]]:
    """Group problems by which of two entrants reached them, with the successes of each such as ``2/5``."""
    groups = ("only-a", "only-b", "both", "neither", "not-tried")
    found: dict[str, list[tuple[str, ...]]] = {group: [] for group in groups}
    for row in rows:
        by_a, by_b = row.successes[a] > 0, row.successes[b] > 0
        group = "both" if by_a and by_b else "only-a" if by_a else "only-b" if by_b else "neither"
        # An entrant without an ended run has not failed.
        group = group if row.runs[a] and row.runs[b] else "not-tried"
        found[group].append((row.problem, *(f"{row.successes[i]}/{row.runs[i]}" for i in (a, b))))
    return found
