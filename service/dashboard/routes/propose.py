"""Form with which a person proposes a program to a run, the wait for its result, and hints to the run's policies."""

from uuid import uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.api.proposals import HintRequest, proposer
from service.dashboard.context import DashboardDep
from service.dashboard.forms import FormDep, FormErrors, form_errors, idempotency_key
from service.dashboard.pages import page
from service.dashboard.parameters import RunIdDep, parse_count
from service.dashboard.run_view import RunView, RunViewDep
from service.principal import PrincipalDep
from speciate.domain.errors import InvalidInputError, NotFoundError, SpeciateError
from speciate.runs.external_proposals import check_hint
from speciate.schema.proposals import ProposalState, ProposedCandidate, ReceiptStatus

router = APIRouter(include_in_schema=False, prefix="/runs")
actions = APIRouter(include_in_schema=False, prefix="/runs")
"""Routes that require scope ``propose``."""


@router.get("/{run_id}/propose")
def show_form(request: Request, view: RunViewDep, parent: str = "") -> Response:
    """Show the form with the program of a parent: by default the best candidate's, else the seed program."""
    number = parent.strip()[:12] or ("" if view.run.best is None else str(view.run.best.number))
    program, errors = view.problem.seed_program, None
    if number:
        try:
            program = view.candidate(_number(number)).program
        except SpeciateError as error:
            number, errors = "", form_errors(error)
    return _form(request, view, {"parent": number, "program": program}, errors)


@actions.post("/{run_id}/propose")
def propose(request: Request, view: RunViewDep, form: FormDep, principal: PrincipalDep) -> Response:
    parent, run_id, stores = form.text("parent"), view.run.id, view.dashboard.stores
    try:
        proposal = ProposedCandidate(
            program=form.fields.get("program", ""),
            parents=(_number(parent),) if parent else (),
            rationale=form.text("rationale"),
        )
        receipts, commit = stores.proposals.propose(
            run_id,
            proposer(stores, run_id, None),
            [proposal],
            author=principal.name,
            idempotency_key=idempotency_key(form.fields, proposal.model_dump(mode="json")),
        )
        if receipts[0].status is ReceiptStatus.REFUSED:
            raise InvalidInputError(f"{receipts[0].reason}.")
    except (SpeciateError, ValidationError) as error:
        return _form(request, view, form.fields, form_errors(error))
    if commit is not None:
        stores.signals.committed(commit)
    return RedirectResponse(f"/runs/{run_id}/proposals/{receipts[0].number}", 303)


@router.get("/{run_id}/proposals/{number}")
def await_result(request: Request, run_id: RunIdDep, number: str, dashboard: DashboardDep) -> Response:
    """Lead to the candidate's page unless the run ended before the candidate was evaluated."""
    result = dashboard.stores.proposals.result(run_id, _number(number))
    if result is None:
        raise NotFoundError(f"there is no candidate {number[:12]} in run {run_id}.")
    if result.candidate_id is not None or result.state is ProposalState.PENDING:
        return RedirectResponse(f"/runs/{run_id}/candidates/{result.number}", 303)
    return page(request, "proposal.html", run=dashboard.stores.runs.get(run_id), number=result.number)


@actions.post("/{run_id}/guidance")
def hint(request: Request, view: RunViewDep, form: FormDep, principal: PrincipalDep) -> Response:
    run_id, stores = view.run.id, view.dashboard.stores
    try:
        text = HintRequest(text=form.text("text")).text
        check_hint(stores.work.context(run_id))
        _, commit = stores.proposals.hint(run_id, text, author=principal.name)
    except (SpeciateError, ValidationError) as error:
        return _form(request, view, form.fields, form_errors(error))
    stores.signals.committed(commit)
    return RedirectResponse(f"/runs/{run_id}/prompts#advice", 303)


def _form(request: Request, view: RunView, values: dict[str, str], errors: FormErrors | None) -> Response:
    status = 200 if errors is None else 422
    # A refused form gets a new key, since the run keeps the refusal under the old one.
    return page(request, "propose.html", status, view=view, run=view.run, values=values, errors=errors, key=uuid4().hex)


def _number(text: str) -> int:
    if not (number := parse_count(text)):
        raise InvalidInputError(f"{text[:40]!r} is not the number of a candidate.")
    return number
