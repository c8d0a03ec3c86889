"""Pages from templates: always escaped, with the headers that let a browser load what is ours and nothing else."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.dashboard import assets
from service.dashboard.words import FILTERS
from speciate import __version__

THEMES: Final = ("light", "dark")
THEME_COOKIE: Final = "speciate_theme"
HEADERS: Final = {
    # Plotly's SVG traces evaluate no code; it does write style attributes.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Forms say where they come from; nobody else hears of it.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding, Cookie",
}
NAVIGATION: Final = (
    ("/", "Activity", "activity"),
    ("/runs", "Runs", "runs"),
    ("/problems", "Problems", "problems"),
    ("/policies", "Policies", "policies"),
    ("/unlocks", "Unlocks", "unlocks"),
    ("/tournaments", "Tournaments", "tournaments"),
    ("/workers", "Workers", "workers"),
    ("/access", "Access", "access"),
)
_PACK_BYTES: Final = 1000


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.globals |= {
        "navigation": NAVIGATION,
        "speciate_version": __version__,
        "css": assets.CSS.path,
        "js": assets.JS.path,
        "icon": assets.ICON.path,
        "plotly": assets.PLOTLY.path,
        "guarded_styles": assets.guarded_styles(),
        "address": address,
    }
    made.globals["m"] = made.get_template("macros.html").module
    return made


def address(path: str, /, **query: Any) -> str:
    """Return a path with a query; parts that are None or empty are left out."""
    kept = [(name, value) for name, value in query.items() if value not in {None, ""}]
    return quote(path, safe="/@:") + ("?" + urlencode(kept) if kept else "")


def fragment(template: str, /, **context: Any) -> str:
    """Return a part of a page."""
    return environment().get_template(template).render(**context)


def page(request: Request, template: str, status_code: int = 200, /, **context: Any) -> Response:
    """Return a page.

    Args:
        request: Says which part of the navigation it is in, and which theme was chosen.
        template: Name of the template.
        status_code: HTTP status.
        context: What the template shows.
    """
    theme = request.cookies.get(THEME_COOKIE, "")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    common = {
        "theme": theme if theme in THEMES else "",
        "path": request.url.path,
        "here": here,
        "me": getattr(request.state, "principal", None),
    }
    text = fragment(template, **common, **context)
    return html(request, text, status_code)


def html(request: Request, text: str, status: int = 200) -> Response:
    """Return an answer with a page's headers, compressed where that is understood."""
    # Texts of programs may hold what UTF-8 cannot.
    content = text.encode("utf-8", "replace")
    headers = dict(HEADERS)
    if "gzip" in request.headers.get("accept-encoding", "") and len(content) > _PACK_BYTES:
        content = gzip.compress(content, 5, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, headers=headers, media_type="text/html; charset=utf-8")
