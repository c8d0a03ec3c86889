"""Problems: the list, the page of a version with its record history, and the submission form."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from service.dashboard.charts import Figure, add_figure_routes
from service.dashboard.context import DashboardDep
from service.dashboard.figures.record_history import record_history_chart
from service.dashboard.forms import FormDep, FormErrors, form_errors
from service.dashboard.objectives import by_importance
from service.dashboard.pages import page
from service.dashboard.parameters import Text
from service.dashboard.policy_pairs import listed_pairs
from service.dashboard.routes.visibility import listed
from service.dependencies import AppStateDep
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError
from speciate.domain.visibility import Visibility
from speciate.problems.loader import FILE_NAME, parse_problem
from speciate.problems.siblings import TEMPLATE_FOLDER
from speciate.problems.template import example

router = APIRouter(include_in_schema=False, prefix="/problems")

_COLUMNS: Final = 6
_LATEST: Final = 500
_FILE: Final = "file:"
_AROUND: Final = 2
_MAX_EXCERPTS: Final = 20


@router.get("")
def list_problems(
    request: Request, dashboard: DashboardDep, name: Text = "", visibility: Text = "", cursor: Text = ""
) -> Response:
    versions, filters = listed(dashboard.stores.catalog.problems, "/problems", name, visibility, cursor)
    problems, cells = dashboard.stores.overview.problem_results(versions).items, dashboard.stores.overview.matrix()
    return page(request, "problems.html", problems=problems, cells=cells, **filters)


@router.get("/new")
def show_form(request: Request, filled: Annotated[str, Query(alias="example", max_length=10)] = "") -> Response:
    """Show the submission form, on request filled in with a small working problem."""
    files = example() if filled else {}
    return _form(request, {"toml": files.pop(FILE_NAME, "")}, files, None)


@router.post("")
def submit(request: Request, form: FormDep, dashboard: DashboardDep, app_state: AppStateDep) -> Response:
    files = {name.removeprefix(_FILE): text for name, text in form.fields.items() if name.startswith(_FILE)}
    files |= form.files
    definition = files.pop(FILE_NAME, "") or form.fields.get("toml", "")
    try:
        if not definition.strip():
            raise InvalidInputError("There is no problem.toml: choose its files, or paste it.")
        problem = parse_problem(definition, {f"{TEMPLATE_FOLDER}/{name}": text for name, text in files.items()} | files)
        version, _ = app_state.add_problem(problem, dashboard.stores, check=form.fields.get("unchecked") != "on")
    except SpeciateError as error:
        return _form(request, form.fields | {"toml": definition}, files, form_errors(error))
    return RedirectResponse(f"/problems/{version.definition.slug}@{version.version}", 303)


@router.get("/{name}")
def show_problem(request: Request, name: str, dashboard: DashboardDep) -> Response:
    version = dashboard.stores.catalog.problem(name)
    unlocks, total = dashboard.stores.unlocks.history(version.id, latest=_LATEST)
    problem = version.definition
    cells = dashboard.stores.overview.matrix(problem=version.id)
    context: dict[str, Any] = {
        "version": version,
        "problem": problem,
        "versions": dashboard.stores.catalog.problems(slug=problem.slug, visibility=Visibility.ALL, limit=20).items,
        "runs": dashboard.stores.runs.list(problem_id=version.id, limit=12).items,
        "chart": record_history_chart(unlocks, total),
        "reached": dashboard.stores.unlocks.cheapest(version.id),
        "bests": dashboard.stores.overview.bests(version),
        "objectives": by_importance(problem)[:_COLUMNS],
        "cells": sorted(cells, key=lambda cell: (-cell.unlocked / max(1, cell.runs), cell.fewest or 0)),
        "pairs": listed_pairs(dashboard.stores.catalog, cells),
    }
    return page(request, "problem.html", **context)


def _figure(name: str, dashboard: DashboardDep) -> Figure:
    version = dashboard.stores.catalog.problem(name)
    unlocks, total = dashboard.stores.unlocks.history(version.id, latest=_LATEST)
    newest = (unlocks[-1].at, unlocks[-1].run_id, unlocks[-1].target) if unlocks else None
    file = f"{version.definition.slug}-{version.version}-records"
    return Figure(("records", version.id, total, newest), lambda: record_history_chart(unlocks, total), file)


def _form(request: Request, values: Mapping[str, str], files: Mapping[str, str], errors: FormErrors | None) -> Response:
    texts = {FILE_NAME: values.get("toml", ""), **files}
    status = 200 if errors is None else 422
    excerpts = _excerpts(errors, texts) if errors else []
    return page(request, "new_problem.html", status, values=values, files=files, errors=errors, excerpts=excerpts)


def _excerpts(errors: FormErrors, texts: Mapping[str, str]) -> list[tuple[FieldError, list[tuple[int, str, bool]]]]:
    """Return errors with the lines around them: number and text of a line, and True for the line with the error."""
    excerpts = []
    for detail in errors.details[:_MAX_EXCERPTS]:
        if detail.line is None or detail.file is None or detail.file not in texts:
            continue
        lines = texts[detail.file].split("\n")
        first, last = max(1, detail.line - _AROUND), min(len(lines), detail.line + _AROUND)
        excerpts.append((detail, [(n, lines[n - 1][:500], n == detail.line) for n in range(first, last + 1)]))
    return excerpts


add_figure_routes(router, "/{name}/records", _figure)
