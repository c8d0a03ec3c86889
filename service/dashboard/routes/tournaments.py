"""Pages of tournaments: the form, the report, and two entrants side by side."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field, ValidationError, create_model

from service.dashboard.charts import Chart, Table, download, thinned
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.tournament import differences_chart, reach_chart, score_chart
from service.dashboard.forms import FormDep, idempotency_key
from service.dashboard.model_form import PROBLEMS_NOTE, ModelForm, add_form_routes
from service.dashboard.pages import page
from service.dashboard.parameters import Word
from service.dashboard.policy_pairs import COMPARED, compared
from service.dashboard.routes.declarations import add_declaration_routes
from service.responses import attachment
from speciate.domain.entrant import Named
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.run import SearchOptions
from speciate.domain.tournament import Tournament
from speciate.domain.values import Value
from speciate.policies import asks_singly
from speciate.runs.declarations import entrant_policies, pin_tournament
from speciate.runs.estimate import estimate_run
from speciate.runs.start import prepare_run
from speciate.schema.declarations import TournamentRecord
from speciate.schema.estimates import Range
from speciate.search.strategies import STRATEGIES
from speciate.storage.stores import Stores
from speciate.tournaments.head_to_head import head_to_head
from speciate.tournaments.rendering.conclusion import conclusion, deciding
from speciate.tournaments.rendering.html import page as html_report
from speciate.tournaments.rendering.tables import sections, short_sections, verdict
from speciate.tournaments.report.comparisons import problems_power
from speciate.tournaments.report.methods import methods_doubt, methods_power
from speciate.tournaments.report.models import MatrixRow

router = APIRouter(include_in_schema=False, prefix="/tournaments")

MAX_ROWS: Final = 300
_TABS: Final[dict[str, tuple[str, ...]]] = {
    "comparisons": ("methods", "training-runs", "comparisons", "nulls", "sets", "pairwise", "strengths"),
    "problems": ("matrix", "only", "draws", "noisy"),
    "budget": ("reached", "laws", "score-laws"),
    "policies": ("standings", "quality", "health", "costs"),
    "design": (),
}
"""Sections of the report by tab."""
_CHARTS: Final = {"reached": "", "differences": "comparisons"}
"""Tab of each chart."""


class HeadToHead(Value):
    """The fields of the form from which the standard head-to-head is made."""

    policies: tuple[Named, ...] = Field(min_length=2, max_length=50)
    """Two or more, the baseline first. Each enters twice: with independent answers (best_of_n), and evolved."""
    mutator: Named | None = None
    """Common mutator of an additional group of entrants."""
    strategy: str = SearchOptions.model_fields["strategy"].default
    """Strategy of the evolved entrants; best_of_n leaves them out."""
    seeds: int = Field(default=8, ge=1, le=1000)
    """Number of seeds; each problem and entrant has one run for every seed."""
    declaration: str = ""
    """Complete declaration in TOML, instead of all other fields: for entrants of other kinds, and training runs of
    methods."""


_DECLARED: Final[dict[str, Any]] = {
    name: (field.annotation, field)
    for name, field in Tournament.model_fields.items()
    if name not in {"entrants", "baseline", "seeds"}
}
_Setup = create_model("Setup", __base__=HeadToHead, **_DECLARED)
"""The form: the head-to-head with the fields of a tournament that it leaves open."""

FORM: Final = ModelForm(
    path="/tournaments",
    title="Compare policies",
    button="Review tournament",
    lead="A tournament runs policies on the same problems, seeds and budget, with tests that are declared in advance.",
    models=(_Setup,),
    first=("slug", "policies", "budget.evaluations", "seeds", "problems"),
    notes={"problems": PROBLEMS_NOTE, "budget.evaluations": "Evaluations of each run."},
    choices={"strategy": tuple(STRATEGIES)},
)
add_form_routes(router, FORM)


@router.post("")
def declare_tournament(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Show what the tournament will take, and declare it once that is confirmed."""
    values, store = form.fields, dashboard.stores.tournaments
    try:
        declared = Tournament.model_validate(_declaration(values))
        pinned = pin_tournament(declared, dashboard.stores.catalog)
        if values.get("confirmed") != pinned.digest:
            return FORM.page(request, dashboard, values, plan=plan_tournament(dashboard.stores, pinned))
        key = idempotency_key(values, declared.digest)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=key)
    except (SpeciateError, ValidationError) as error:
        return FORM.refuse(request, dashboard, values, error)
    return RedirectResponse(f"/tournaments/{store.get(declared_id).slug}", 303)


def _declaration(values: Mapping[str, str]) -> dict[str, Any]:
    if text := values.get("declaration", "").strip():
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            detail = FieldError(f"is not TOML: {error}", where="declaration")
            raise InvalidInputError(f"{detail}.", field_errors=(detail,)) from None
    setup = _Setup.model_validate({"budget": {}} | FORM.read(values))
    entrants, baseline = head_to_head(setup.policies, mutator=setup.mutator, strategy=setup.strategy)
    declared = setup.model_dump(exclude=set(HeadToHead.model_fields), exclude_unset=True)
    entered = {"entrants": [entrant.model_dump() for entrant in entrants], "baseline": baseline}
    return {**declared, **entered, "seeds": [*range(setup.seeds)]}


@router.get("/{name}/pair")
def show_pair(request: Request, name: str, dashboard: DashboardDep, a: Word = "", b: Word = "") -> Response:
    """Show two entrants side by side whose comparison is declared."""
    record = dashboard.stores.tournaments.get(name)
    report = dashboard.report(record)
    comparison = next((c for c in report.standings.comparisons if (c.a, c.b) == (a, b)), None)
    if comparison is None:
        raise NotFoundError(
            f"tournament {record.slug!r} declares no comparison of {a[:60]!r} with {b[:60]!r}.",
            remedy="Its tab Comparisons lists those that it declares.",
        )
    names = report.matrix.entrants
    context = {
        "record": record,
        "report": report,
        "comparison": comparison,
        "standing": {s.entrant: s for s in report.standings.standings},
        "rows": pair_rows(report.matrix.rows, names.index(a), names.index(b)),
        "most": MAX_ROWS,
    }
    return page(request, "pair.html", **context)


@router.get("/{name}/matrix.csv")
def download_matrix(name: str, dashboard: DashboardDep) -> Response:
    """Return the unlock matrix as CSV: runs that reached the target, of the ended ones."""
    record = dashboard.stores.tournaments.get(name)
    matrix = dashboard.stores.tournaments.results.matrix(record)
    rows = [[row.problem, *(f"{s}/{n}" for s, n in zip(row.successes, row.runs, strict=True))] for row in matrix.rows]
    return download(Table(("problem", *matrix.entrants), rows), f"tournament-{record.slug}-matrix")


@router.get("/{name}/report.html")
def download_report(name: str, dashboard: DashboardDep) -> Response:
    """Return the report as one HTML file."""
    report = dashboard.report(dashboard.stores.tournaments.get(name))
    return Response(html_report(report), media_type="text/html", headers=attachment(f"{report.standings.slug}.html"))


def _revision(record: TournamentRecord) -> str:
    return f"{record.state}-{record.ended}-{len(record.amendments)}"


def _context(dashboard: DashboardContext, record: TournamentRecord, tab: str) -> dict[str, Any]:
    report = dashboard.report(record)
    tab_of = {key: name for name, keys in _TABS.items() for key in keys}
    all_sections = [section for section in sections(report) if tab_of.get(section.key, "design") == tab]
    return {
        "tabs": ("", *_TABS),
        "tab": tab,
        "conclusion": conclusion(report),
        "deciding": deciding(report),
        "verdicts": [(verdict(c), c) for c in report.standings.comparisons],
        "method_verdicts": [(verdict(c), c) for c in report.standings.methods],
        "power": methods_power(record.declaration) or problems_power(record.declaration, len(record.schedule.problems)),
        "sections": all_sections if tab else short_sections(report),
        "chart_tabs": _CHARTS,
        "most": MAX_ROWS,
    }


def _charts(dashboard: DashboardContext, record: TournamentRecord, narrow: bool) -> Sequence[Chart]:
    report = dashboard.report(record)
    metric = report.standings.metric.replace("_", " ")
    return (
        score_chart(report.score_laws) if record.declaration.metric.of_scores else reach_chart(report.reached),
        differences_chart(report.standings.comparisons, metric, narrow=narrow),
    )


def pair_rows(rows: Sequence[MatrixRow], a: int, b: int) -> dict[str, list[tuple[str, ...]]]:
    """Group problems by which of two entrants reached them, with the successes of each such as ``2/5``."""
    groups: dict[str, list[tuple[str, ...]]] = {group: [] for group in COMPARED}
    for row in rows:
        # An entrant without an ended run has not failed.
        group = compared(*(row.successes[i] if row.runs[i] else None for i in (a, b)))
        groups[group].append((row.problem, *(f"{row.successes[i]}/{row.runs[i]}" for i in (a, b))))
    return groups


add_declaration_routes(router, "tournament", lambda stores: stores.tournaments, _revision, _context, _charts)


_SAMPLED: Final = 4
"""Problems of which runs are estimated; the others are taken to be like them."""


@dataclass(frozen=True)
class TournamentPlan:
    declared: Tournament
    amounts: dict[str, Range]
    """Tokens and US dollars of all runs; without those that no policy spends."""
    doubt: str
    """Why nothing can be decided; empty if something can."""
    power: tuple[str, ...]
    """What it can detect, in sentences."""

    @property
    def runs(self) -> int:
        return len(self.declared.problems) * len(self.declared.entrants) * len(self.declared.seeds)


def plan_tournament(stores: Stores, declared: Tournament) -> TournamentPlan:
    """Return the plan of a tournament whose names are pinned; raises as ``estimate_run`` does."""
    problems = [declared.problems[i] for i in thinned(len(declared.problems), _SAMPLED)]
    scale = len(declared.problems) / len(problems) * len(declared.seeds)
    totals: dict[str, list[float]] = {"tokens": [0, 0, 0], "dollars": [0, 0, 0]}
    for problem in map(stores.catalog.problem, problems):
        for entrant in declared.entrants:
            policies, spec = entrant_policies(entrant, stores.catalog), declared.spec(entrant, declared.seeds[0])
            new = prepare_run(stores.runs, problem=problem, policies=policies, spec=spec)
            estimate = estimate_run(stores.runs, new, asks_singly)
            for name, total in totals.items():
                if (amount := getattr(estimate, name)) is not None:
                    total[:] = (each + scale * more for each, more in zip(total, dict(amount).values(), strict=True))
    ends = ("low", "expected", "high")
    amounts = {name: Range(**dict(zip(ends, total, strict=True))) for name, total in totals.items() if total[2]}
    power = methods_power(declared) if declared.method_groups else problems_power(declared, len(declared.problems))
    return TournamentPlan(declared, amounts, declared.doubt or methods_doubt(declared), power)
