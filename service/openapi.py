"""The description of the API, and ``python -m service.openapi``, which writes it to ``docs/openapi.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.problem_details import MEDIA_TYPE, ProblemDetails
from speciate.settings import Settings

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"

_REFUSAL: Final = {
    "description": "Refused: RFC 9457 problem details with a stable type.",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
_OPEN: Final = ("/healthz", "/readyz")


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application; every refusal has one shape."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        ours = TypeAdapter(ProblemDetails).json_schema(ref_template="#/components/schemas/{model}")
        schemas |= ours.pop("$defs") | {"ProblemDetails": ours}
        found["components"]["schemas"] = dict(sorted(schemas.items()))
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in found["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _REFUSAL
                operation["security"] = [{}] if path in _OPEN else [{"token": []}, {}]
        app.openapi_schema = found
    return app.openapi_schema


def text() -> str:
    """Return the document as it is kept in ``docs/openapi.json``."""
    from service.app import create_app

    app = create_app(Settings(host="127.0.0.1", token=None))
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the document."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
