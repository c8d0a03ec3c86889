"""Log in and out, and select project and theme."""

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from service.authentication import Credentials
from service.dashboard.forms import FormDep, SubmittedForm, form_errors, local_path
from service.dashboard.pages import THEME_COOKIE, THEMES, page
from service.dependencies import AppStateDep
from service.principal import PROJECT_COOKIE, SESSION_COOKIE, NeedsOperator, principal_of_bearer
from speciate.domain.errors import SpeciateError
from speciate.storage.access.tokens import SESSION_LIFE
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID

router = APIRouter(include_in_schema=False)

_YEAR_S = 31_536_000


@router.get("/login")
def show_login(request: Request, next: str = Query("", max_length=2000)) -> Response:  # noqa: A002
    """Show the login form; redirect a client that is logged in."""
    if request.state.principal is not None:
        return RedirectResponse(local_path(next), 303)
    return page(request, "login.html", errors=None, next=next)


@router.post("/login")
def log_in(request: Request, form: FormDep, app_state: AppStateDep) -> Response:
    credentials: Credentials = request.state.credentials
    authenticator, token = app_state.authenticator, form.text("token")
    try:
        bearer = authenticator.bearer(Credentials(token or "-", None, None, None, credentials.address))
    except SpeciateError as error:
        return page(request, "login.html", 401, errors=form_errors(error), next=form.text("next"))
    secret = app_state.stores.tokens.log_in(bearer, authenticator.operator_token)
    request.state.principal = principal_of_bearer(
        bearer, bearer.project_id or DEFAULT_PROJECT_ID, bearer.project, session=True
    )
    response = RedirectResponse(local_path(form.text("next")), 303)
    life = int(SESSION_LIFE.total_seconds())
    response.set_cookie(
        SESSION_COOKIE, secret, max_age=life, httponly=True, samesite="lax", secure=_secure(request, app_state)
    )
    return response


@router.post("/logout", dependencies=[SubmittedForm])
async def log_out(request: Request, app_state: AppStateDep) -> Response:
    credentials: Credentials = request.state.credentials
    if credentials.session:
        await run_in_threadpool(app_state.stores.tokens.log_out, credentials.session)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(SESSION_COOKIE)
    return response


@router.post("/project", dependencies=[NeedsOperator])
def choose_project(request: Request, form: FormDep, app_state: AppStateDep) -> Response:
    project = app_state.stores.projects.get(form.text("project")[:80])
    response = RedirectResponse("/", 303)
    response.set_cookie(
        PROJECT_COOKIE, project.slug, max_age=_YEAR_S, httponly=True, samesite="lax", secure=_secure(request, app_state)
    )
    return response


@router.post("/theme")
def choose_theme(form: FormDep) -> Response:
    response = RedirectResponse(local_path(form.text("back")), 303)
    theme = form.text("theme")
    response.set_cookie(THEME_COOKIE, theme if theme in THEMES else "light", max_age=_YEAR_S, samesite="lax")
    return response


def _secure(request: Request, app_state: AppStateDep) -> bool:
    """Return True if browsers reach the service by HTTPS, so that cookies are sent over HTTPS only."""
    return request.url.scheme == "https" or app_state.settings.base_url.startswith("https:")
