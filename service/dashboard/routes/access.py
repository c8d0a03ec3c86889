"""Access page: API tokens of the project, projects and quotas."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.api.administration import ProjectRequest, TokenRequest, add_project
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import parse_number
from service.dashboard.forms import FormDep, FormErrors, SubmittedForm, form_errors
from service.dashboard.pages import page
from service.dashboard.parameters import parse_count, parse_id
from service.principal import NeedsAdmin, NeedsOperator, Principal, PrincipalDep
from speciate.domain.access import Quota, Scope
from speciate.domain.errors import SpeciateError, invalid_field
from speciate.schema.projects import NewToken

router = APIRouter(include_in_schema=False, prefix="/access")

_LIMIT: Final = 200
_MAX_DAYS: Final = 36_500


@router.get("")
def show_access(request: Request, dashboard: DashboardDep, principal: PrincipalDep) -> Response:
    return _page(request, dashboard, principal)


@router.post("/tokens", dependencies=[NeedsAdmin])
def create_token(request: Request, form: FormDep, dashboard: DashboardDep, principal: PrincipalDep) -> Response:
    try:
        body = TokenRequest.model_validate(
            {
                "name": form.text("name"),
                "scope": form.text("scope") or Scope.READ,
                "expires_at": _expiry(form.text("days")),
            }
        )
        token = dashboard.stores.tokens.create(
            principal.project_id, body.name, body.scope, created_by=principal.name, expires_at=body.expires_at
        )
    except (SpeciateError, ValidationError) as error:
        return _page(request, dashboard, principal, values=form.fields, errors=form_errors(error))
    response = _page(request, dashboard, principal, token=token)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/tokens/{token_id}/revoke", dependencies=[SubmittedForm, NeedsAdmin])
def revoke_token(token_id: str, dashboard: DashboardDep, principal: PrincipalDep) -> Response:
    dashboard.stores.tokens.revoke(principal.project_id, parse_id(token_id, "token"))
    return RedirectResponse("/access", 303)


@router.post("/projects", dependencies=[NeedsOperator])
def create_project(request: Request, form: FormDep, dashboard: DashboardDep, principal: PrincipalDep) -> Response:
    try:
        add_project(ProjectRequest(slug=form.text("slug"), title=form.text("title")), dashboard.stores)
    except (SpeciateError, ValidationError) as error:
        return _page(request, dashboard, principal, values=form.fields, errors=form_errors(error))
    return RedirectResponse("/access", 303)


@router.post("/projects/{name}/quota", dependencies=[NeedsOperator])
def set_quota(request: Request, name: str, form: FormDep, dashboard: DashboardDep, principal: PrincipalDep) -> Response:
    limits = {each: form.text(each) for each in Quota.model_fields}
    try:
        quota = Quota.model_validate({k: parse_number("integer", v) if v else None for k, v in limits.items()})
        dashboard.stores.projects.limit(name, quota)
    except ValidationError as error:
        return _page(request, dashboard, principal, errors=form_errors(error))
    return RedirectResponse("/access", 303)


def _page(
    request: Request,
    dashboard: DashboardContext,
    principal: Principal,
    *,
    token: NewToken | None = None,
    values: Mapping[str, str] | None = None,
    errors: FormErrors | None = None,
) -> Response:
    admin, projects = principal.scope.includes(Scope.ADMIN), dashboard.stores.projects
    only = None if principal.all_projects else principal.project_id
    context: dict[str, Any] = {
        "most": _LIMIT,
        "tokens": dashboard.stores.tokens.list(principal.project_id, limit=_LIMIT).items if admin else None,
        "projects": [projects.usage(p.slug) for p in projects.list(only=only, limit=_LIMIT).items],
        "scopes": [scope.value for scope in Scope],
        "token": token,
        "values": values or {},
        "errors": errors,
    }
    return page(request, "access.html", 200 if errors is None else 422, **context)


def _expiry(days: str) -> datetime | None:
    if not days:
        return None
    number = parse_count(days)
    if not number or number > _MAX_DAYS:
        raise invalid_field("The token", "days", f"is {days[:20]!r}: expected a number of days up to {_MAX_DAYS:,}")
    return datetime.now(UTC) + timedelta(days=number)
