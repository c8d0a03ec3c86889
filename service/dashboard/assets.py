"""Serve static files under paths with their content hash: compressed once, cached by browsers for good."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from fastapi import APIRouter, Request, Response

from speciate.domain.errors import NotFoundError

_STATIC: Final = resources.files(__package__) / "static"


@dataclass(frozen=True)
class Asset:
    """A static file; ``preface`` is sent before the content of ``source``."""

    name: str
    media_type: str
    source: Traversable
    preface: bytes = b""

    @cached_property
    def content(self) -> bytes:
        return self.preface + self.source.read_bytes()

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, 9 if len(self.content) < 1 << 20 else 6, mtime=0)

    @cached_property
    def path(self) -> str:
        """The URL path; a changed file has another hash and therefore another path."""
        return f"/static/{hashlib.sha256(self.content).hexdigest()[:16]}/{self.name}"


CSS: Final = Asset("app.css", "text/css; charset=utf-8", _STATIC / "app.css")
JS: Final = Asset("app.js", "text/javascript; charset=utf-8", _STATIC / "app.js")
ICON: Final = Asset("icon.svg", "image/svg+xml", _STATIC / "icon.svg")
PLOTLY: Final = Asset(
    "plotly.js",
    "text/javascript; charset=utf-8",
    _STATIC / "plotly.js",
    # With this comment Chromium compiles the whole file on another thread while it loads, instead of thousands of
    # functions one by one on the page's own thread.
    b"//# allFunctionsCalledOnLoad\n",
)
DOCS_JS: Final = Asset("docs.js", "text/javascript; charset=utf-8", _STATIC / "docs.js")
_SWAGGER: Final = resources.files("fastapi_offline") / "static"
SWAGGER_JS: Final = Asset("swagger-ui.js", "text/javascript; charset=utf-8", _SWAGGER / "swagger-ui-bundle.js")
SWAGGER_CSS: Final = Asset("swagger-ui.css", "text/css; charset=utf-8", _SWAGGER / "swagger-ui.css")
_ASSETS: Final = {asset.name: asset for asset in (CSS, JS, ICON, PLOTLY, DOCS_JS, SWAGGER_JS, SWAGGER_CSS)}

router = APIRouter(include_in_schema=False)


@router.get("/static/{digest}/{name}")
def get_asset(digest: str, name: str, request: Request) -> Response:
    asset = _ASSETS.get(name)
    if asset is None or asset.path != f"/static/{digest}/{name}":
        raise NotFoundError("no such file.", remedy="Reload the page: it links the current version.")
    gzipped = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed if gzipped else asset.content, headers=headers, media_type=asset.media_type)


def warm() -> None:
    for asset in _ASSETS.values():
        _ = asset.path, asset.compressed
