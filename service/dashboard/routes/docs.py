"""Page of the REST API: Swagger UI from its installed package, and a table for browsers without JavaScript."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.dashboard import assets
from service.dashboard.pages import page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def show_docs(request: Request) -> Response:
    paths = request.app.openapi()["paths"]
    operations = [
        (method.upper(), path, operation["summary"])
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    scripts = (assets.SWAGGER_JS.path, assets.DOCS_JS.path)
    return page(request, "docs.html", operations=operations, scripts=scripts, style=assets.SWAGGER_CSS.path)
