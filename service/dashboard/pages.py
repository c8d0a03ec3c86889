"""Pages from templates: always escaped, with the headers that let a browser load what is ours and nothing else."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.dashboard import assets
from service.dashboard.formatting import FILTERS
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
    ("/campaigns", "Campaigns", "campaigns"),
    ("/workers", "Workers", "workers"),
    ("/access", "Access", "access"),
)
_PACK_BYTES: Final = 1000
_HTML: Final = "text/html; charset=utf-8"
_SO_FAR: Final = Markup("<!-- so far -->")
"""What a template has before it is sent at once: browsers paint it while what comes after is still worked out."""


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
        "so_far": _SO_FAR,
    }
    made.globals["m"] = made.get_template("macros.html").module
    return made


def warm() -> None:
    """Make what the first page would wait for: compressed files and compiled templates."""
    assets.warm()
    for name in environment().list_templates():
        environment().get_template(name)


def address(path: str, /, **query: Any) -> str:
    """Return a path with a query; parts that are None or empty are left out, a tuple is a part for each value."""
    kept = [(name, value) for name, value in query.items() if value not in {None, "", ()}]
    return quote(path, safe="/@:") + ("?" + urlencode(kept, doseq=True) if kept else "")


def fragment(template: str, /, **context: Any) -> str:
    """Return a part of a page."""
    return environment().get_template(template).render(**context)


def macro(name: str, /, *given: Any) -> str:
    """Return what a macro makes of its arguments."""
    return str(getattr(environment().globals["m"], name)(*given))


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
    context |= {
        "theme": theme if theme in THEMES else "",
        "path": request.url.path,
        "here": here,
        "me": getattr(request.state, "principal", None),
    }
    sections = _sections(environment().get_template(template).generate(**context))
    # The first one is made before the answer begins: what fails until then is an error page.
    first, headers = next(sections), dict(HEADERS)
    packed = "gzip" in request.headers.get("accept-encoding", "") and len(first) > _PACK_BYTES
    if packed:
        headers["Content-Encoding"] = "gzip"
    if first.endswith(_SO_FAR.encode()):
        stream = _packed(first, sections) if packed else chain((first,), sections)
        return StreamingResponse(stream, status_code, headers=headers, media_type=_HTML)
    content = gzip.compress(first, 5, mtime=0) if packed else first
    return Response(content, status_code, headers=headers, media_type=_HTML)


def _sections(pieces: Iterator[str]) -> Iterator[bytes]:
    held: list[str] = []
    for piece in pieces:
        held.append(piece)
        if piece == _SO_FAR:
            yield _bytes(held)
            held.clear()
    yield _bytes(held)


def _bytes(pieces: list[str]) -> bytes:
    # Texts of programs may hold what UTF-8 cannot.
    return "".join(pieces).encode("utf-8", "replace")


def _packed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(5, wbits=16 + zlib.MAX_WBITS)
    for section in chain((first,), rest):
        yield packer.compress(section) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
