"""Render templates as pages, always escaped, with headers that allow same-origin content only."""

import gzip
import re
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
from service.dashboard.fields import Field
from service.dashboard.formatting import FILTERS
from service.dashboard.highlighting import highlight
from speciate import __version__

THEMES: Final = ("light", "dark")
THEME_COOKIE: Final = "speciate_theme"
HEADERS: Final = {
    # Plotly's SVG traces evaluate no code; it does write style attributes.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Our own forms send their origin; other sites get no referrer.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding, Cookie",
}
NAVIGATION: Final = (
    ("/", "Activity", "concepts/dashboard"),
    ("/runs", "Runs", "concepts/how-a-run-ends"),
    ("/problems", "Problems", "howto/write-evaluators"),
    ("/policies", "Policies", "howto/serve-policies"),
    ("/unlocks", "Unlocks", "concepts/dashboard"),
    ("/tournaments", "Tournaments", "concepts/tournaments"),
    ("/campaigns", "Campaigns", "concepts/campaigns"),
    ("/workers", "Workers", "howto/operate"),
    ("/access", "Access", "howto/manage-access"),
)
"""Path, name and guide of the pages."""
_BIDI: Final = re.compile("<textarea[^<]*|<input[^>]*|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MIN_COMPRESSED: Final = 1000
_HTML: Final = "text/html; charset=utf-8"
_FLUSH: Final = Markup("<!-- flush -->")
"""A marker in a template: the part before it is sent at once and painted while the rest is rendered."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= FILTERS | {"label": lambda name: Field(name, "text", "").label}
    env.globals |= {
        "navigation": NAVIGATION,
        "speciate_version": __version__,
        "css": assets.CSS.path,
        "js": assets.JS.path,
        "icon": assets.ICON.path,
        "plotly": assets.PLOTLY.path,
        "address": address,
        "highlight": highlight,
        "flush": _FLUSH,
    }
    env.globals["m"] = env.get_template("macros.html").module
    return env


def warm() -> None:
    """Compress the static files and compile the templates, so that the first page does not wait for them."""
    assets.warm()
    for name in environment().list_templates():
        environment().get_template(name)


def address(path: str, /, **query: Any) -> str:
    """Return a path with a query, without empty values; a tuple adds one parameter per item."""
    parameters = [(name, value) for name, value in query.items() if value not in {None, "", ()}]
    return quote(path, safe="/@:") + ("?" + urlencode(parameters, doseq=True) if parameters else "")


def fragment(template: str, /, **context: Any) -> str:
    return _shown(environment().get_template(template).render(**context))


def macro(name: str, /, *args: Any) -> str:
    return _shown(str(getattr(environment().globals["m"], name)(*args)))


def _shown(html: str) -> str:
    """Show characters that reverse what follows them: a program may read differently from what runs (trojan source)."""
    # Values of forms keep them, since they are sent back.
    return _BIDI.sub(lambda match: match[0] if len(match[0]) > 1 else f"[U+{ord(match[0]):04X}]", html)


def page(request: Request, template: str, status_code: int = 200, /, **context: Any) -> Response:
    theme = request.cookies.get(THEME_COOKIE, "")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    context |= {
        "theme": theme if theme in THEMES else "",
        "path": request.url.path,
        "here": here,
        "me": getattr(request.state, "principal", None),
    }
    sections = _sections(environment().get_template(template).generate(**context))
    # The first section is rendered before the response starts, so that an error until then becomes an error page.
    first, headers = next(sections), dict(HEADERS)
    gzipped = "gzip" in request.headers.get("accept-encoding", "") and len(first) > _MIN_COMPRESSED
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    if first.endswith(_FLUSH.encode()):
        stream = _compressed(first, sections) if gzipped else chain((first,), sections)
        return StreamingResponse(stream, status_code, headers=headers, media_type=_HTML)
    content = gzip.compress(first, 5, mtime=0) if gzipped else first
    return Response(content, status_code, headers=headers, media_type=_HTML)


def _sections(pieces: Iterator[str]) -> Iterator[bytes]:
    pending: list[str] = []
    for piece in pieces:
        pending.append(piece)
        if piece == _FLUSH:
            yield _bytes(pending)
            pending.clear()
    yield _bytes(pending)


def _bytes(pieces: list[str]) -> bytes:
    # Program texts may contain surrogates, which UTF-8 cannot encode.
    return _shown("".join(pieces)).encode("utf-8", "replace")


def _compressed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(5, wbits=16 + zlib.MAX_WBITS)
    for section in chain((first,), rest):
        yield packer.compress(section) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
