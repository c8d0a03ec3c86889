"""Files that browsers keep: each under a path with its content's hash, compressed once, never asked for again."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from fastapi import APIRouter, Request, Response

from speciate.domain.errors import NotFoundError

_STATIC: Final = resources.files(__package__) / "static"
_GUARDED_STYLE: Final = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
_lock = threading.Lock()


@dataclass(frozen=True)
class Asset:
    """A file as it is served; ``preface`` stands before what its source holds."""

    name: str
    media_type: str
    source: Traversable
    preface: bytes = b""

    @cached_property
    def content(self) -> bytes:
        """The file."""
        return self.preface + self.source.read_bytes()

    @cached_property
    def packed(self) -> bytes:
        """The file, compressed."""
        with _lock:  # once, though several ask
            return gzip.compress(self.content, 9 if len(self.content) < 1 << 20 else 6, mtime=0)

    @cached_property
    def path(self) -> str:
        """Where it is served; the hash makes a changed file another one."""
        return f"/static/{hashlib.sha256(self.content).hexdigest()[:16]}/{self.name}"


CSS: Final = Asset("app.css", "text/css; charset=utf-8", _STATIC / "app.css")
JS: Final = Asset("app.js", "text/javascript; charset=utf-8", _STATIC / "app.js")
ICON: Final = Asset("icon.svg", "image/svg+xml", _STATIC / "icon.svg")
PLOTLY: Final = Asset(
    "plotly.js",
    "text/javascript; charset=utf-8",
    resources.files("plotly") / "package_data" / "plotly.min.js",
    # Chromium then compiles it whole on another thread while it loads, rather than thousands of functions one by one
    # on the page's own as they are called; elsewhere it is a comment.
    b"//# allFunctionsCalledOnLoad\n",
)
_ASSETS: Final = {asset.name: asset for asset in (CSS, JS, ICON, PLOTLY)}

router = APIRouter(include_in_schema=False)


@router.get("/static/{digest}/{name}")
def get_asset(digest: str, name: str, request: Request) -> Response:
    """Send a file, compressed where that is understood."""
    asset = _ASSETS.get(name)
    if asset is None or asset.path != f"/static/{digest}/{name}":
        raise NotFoundError("there is no such file.", remedy="Load the page again: it names the present one.")
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(asset.packed if packed else asset.content, headers=headers, media_type=asset.media_type)


def warm() -> None:
    """Read and compress all files."""
    for asset in _ASSETS.values():
        _ = asset.path, asset.packed


def guarded_styles() -> tuple[str, ...]:
    """Return ids of elements whose presence keeps Plotly from writing styles into the page, which ours forbids."""
    return tuple(sorted({found.decode() for found in _GUARDED_STYLE.findall(PLOTLY.content)}))
