"""Logging in and out, and choosing the project that is looked at."""

from __future__ import annotations

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from service.dashboard.forms import FormDep, SubmittedForm, form_errors, own_path
from service.dashboard.pages import THEME_COOKIE, THEMES, page
from service.dependencies import PartsDep
from service.doorkeeper import Asked
from service.principal import PROJECT_COOKIE, SESSION_COOKIE, NeedsOperator, of_bearer
from speciate.domain.errors import SpeciateError
from speciate.storage.access import SESSION_LIFE
from speciate.storage.tables import DEFAULT_PROJECT_ID

router = APIRouter(include_in_schema=False)

_YEAR_S = 31_536_000


@router.get("/login")
def show_login(request: Request, next: str = Query("", max_length=2000)) -> Response:  # noqa: A002
    """Show the form for a token; who is known already is led on."""
    if request.state.principal is not None:
        return RedirectResponse(own_path(next), 303)
    return page(request, "login.html", errors=None, next=next)


@router.post("/login")
def log_in(request: Request, form: FormDep, parts: PartsDep) -> Response:
    """Begin a session and go on to where it was asked for, or show the form again with why not."""
    asked: Asked = request.state.asked
    keeper, given = parts.doorkeeper, form.text("token")
    try:
        bearer = keeper.bearer(Asked(given or "-", None, None, None, asked.address))
    except SpeciateError as error:
        return page(request, "login.html", 401, errors=form_errors(error), next=form.text("next"))
    secret = parts.stores.access.log_in(bearer, keeper.operator_token)
    request.state.principal = of_bearer(bearer, bearer.project_id or DEFAULT_PROJECT_ID, bearer.project, session=True)
    answer = RedirectResponse(own_path(form.text("next")), 303)
    life = int(SESSION_LIFE.total_seconds())
    answer.set_cookie(SESSION_COOKIE, secret, max_age=life, httponly=True, samesite="lax", secure=_safe(request, parts))
    return answer


@router.post("/logout", dependencies=[SubmittedForm])
async def log_out(request: Request, parts: PartsDep) -> Response:
    """End the session."""
    asked: Asked = request.state.asked
    if asked.session:
        await run_in_threadpool(parts.stores.access.log_out, asked.session)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(SESSION_COOKIE)
    return answer


@router.post("/project", dependencies=[NeedsOperator])
def choose_project(request: Request, form: FormDep, parts: PartsDep) -> Response:
    """Look at another project from now on."""
    project = parts.stores.projects.get(form.text("project")[:80])
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        PROJECT_COOKIE, project.slug, max_age=_YEAR_S, httponly=True, samesite="lax", secure=_safe(request, parts)
    )
    return answer


def _safe(request: Request, parts: PartsDep) -> bool:
    """Tell whether browsers reach this service by HTTPS: they then never send the cookie otherwise."""
    return request.url.scheme == "https" or parts.settings.base_url.startswith("https:")


router = APIRouter(include_in_schema=False)


@router.post("/theme")
def choose_theme(form: FormDep) -> Response:
    """Keep the theme and go back to where it was chosen."""
    answer = RedirectResponse(own_path(form.text("back")), 303)
    theme = form.text("theme")
    answer.set_cookie(THEME_COOKIE, theme if theme in THEMES else "light", max_age=31_536_000, samesite="lax")
    return answer
