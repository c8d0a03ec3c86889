"""The guides, rendered from their Markdown files, and the page of the REST API."""

import posixpath
import re
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from service.dashboard import assets
from service.dashboard.pages import page
from speciate.domain.errors import NotFoundError
from speciate.process_roots import DOCS

router = APIRouter(include_in_schema=False, prefix="/docs")

_PARTS: Final = {"": "Start", "howto": "How-to guides", "concepts": "Concepts", "reference": "Reference"}
_INDEX: Final = "README"
_FOCUS: Final = 'class="scroll" tabindex="0" role="region"'


@cache
def _guides() -> dict[str, tuple[Path, str]]:
    """Return file and title of each guide by its path, such as ``howto/operate``."""
    files = [path for part in _PARTS for path in sorted((DOCS / part).glob("*.md"))]
    names = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in files}
    titles = {name: path.read_text("utf-8").partition("\n")[0].strip("# \n") for name, path in names.items()}
    return {name: (path, titles[name]) for name, path in names.items()}


@router.get("/api")
def show_api(request: Request) -> Response:
    """Show Swagger UI from its installed package; without JavaScript a link to the OpenAPI document."""
    scripts = (assets.SWAGGER_JS.path, assets.DOCS_JS.path)
    return page(request, "api.html", scripts=scripts, style=assets.SWAGGER_CSS.path)


@router.get("")
@router.get("/{name:path}")
def show_guide(request: Request, name: str = _INDEX) -> Response:
    guides = _guides()
    if name not in guides:
        raise NotFoundError(f"there is no guide {name[:80]!r}.", remedy="/docs lists the guides.")
    parts: dict[str, list[tuple[str, str]]] = {title: [] for title in _PARTS.values()}
    for each, (_, title) in guides.items():
        if each != _INDEX:
            parts[_PARTS[posixpath.dirname(each)]].append((each, title))
    return page(request, "guide.html", name=name, title=guides[name][1], html=_rendered(name), parts=parts)


@cache
def _rendered(name: str) -> Markup:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tables = count(1)
    markdown.add_render_rule("table_open", lambda *_: f'<div {_FOCUS} aria-label="Table {next(tables)}"><table>')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>")
    tokens = markdown.parse(_guides()[name][0].read_text("utf-8"))
    for token, following in zip(tokens, [*tokens[1:], *tokens[:1]], strict=True):
        if token.type == "heading_open":
            token.attrSet("id", re.sub(r"[^\w -]", "", following.content.lower()).replace(" ", "-"))
        if token.type == "fence":
            token.info = ""
        token.children = [each for each in token.children or () if each.type != "image"]
        for link in token.children:
            if link.type == "link_open":
                _localize(link, name)
    html = markdown.renderer.render(tokens, markdown.options, {})
    return Markup(html.replace("<pre>", '<pre tabindex="0">'))  # noqa: S704 - of our files


def _localize(link: Token, name: str) -> None:
    """Make a link to another guide one to its page; links to files that are not guides become text."""
    href = str(link.attrGet("href"))
    target, _, anchor = href.partition("#")
    guide = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).removesuffix(".md") if target else name
    if guide in _guides():
        link.attrSet("href", f"/docs/{guide}" + (f"#{anchor}" if anchor else ""))
    elif not re.match(r"https?:", href):
        link.attrs = {}
