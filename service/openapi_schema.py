"""Build the OpenAPI document of the REST API."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.problem_details import MEDIA_TYPE, ProblemDetails

_ERROR_RESPONSE: Final = {
    "description": "Error: RFC 9457 problem details with a stable type.",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
_OPEN: Final = ("/healthz", "/readyz")


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application, with problem details as the default response."""
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
                operation["responses"]["default"] = _ERROR_RESPONSE
                operation["security"] = [{}] if path in _OPEN else [{"token": []}, {}]
        app.openapi_schema = found
    return app.openapi_schema
