"""The theme: a cookie, so that every page comes in it from the first moment, also without JavaScript."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from service.dashboard.forms import FormDep, own_path
from service.dashboard.pages import THEME_COOKIE, THEMES

router = APIRouter(include_in_schema=False)


@router.post("/theme")
def choose_theme(form: FormDep) -> Response:
    """Keep the theme and go back to where it was chosen."""
    answer = RedirectResponse(own_path(form.text("back")), 303)
    theme = form.text("theme")
    answer.set_cookie(THEME_COOKIE, theme if theme in THEMES else "light", max_age=31_536_000, samesite="lax")
    return answer
