"""Build the OpenAPI document of the REST API."""

import re
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.middleware.access_control import OPEN_PATHS
from service.problem_details import PROBLEM_JSON, ProblemDetails

TAGS: Final = {
    "runs": "Start, steer and label runs.",
    "run results": "Candidates, archive, events and other results of a run.",
    "engines": "Lease runs to programs that propose all of their candidates.",
    "evaluations": "Lease candidates and submit their rewards, from any machine.",
    "problems": "Versioned problems and frozen problem sets.",
    "policies": "Versioned policies.",
    "unlocks": "Reached targets.",
    "tournaments": "Declared head-to-head comparisons of policies.",
    "campaigns": "Searches of many problems that share one budget.",
    "access": "Tokens, projects, quotas and the audit log.",
    "webhooks": "Notifications of events.",
    "monitoring": "Health, metrics and workers.",
}

_ERROR_RESPONSE: Final = {
    "description": "Error: RFC 9457 problem details with a stable type.",
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
_SENTENCE: Final = re.compile(r"(.+?)\.(?:\s+|$)", re.DOTALL)


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application, with problem details as the default response."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
            tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            separate_input_output_schemas=False,
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        errors = TypeAdapter(ProblemDetails).json_schema(ref_template="#/components/schemas/{model}")
        schemas |= errors.pop("$defs") | {"ProblemDetails": errors}
        for schema in schemas.values():
            _plain_descriptions(schema)
        document["components"]["schemas"] = dict(sorted(schemas.items()))
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                summarize(operation)
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _ERROR_RESPONSE
                operation["security"] = [{}] if path in OPEN_PATHS else [{"token": []}, {}]
        app.openapi_schema = document
    return app.openapi_schema


def summarize(operation: dict[str, Any]) -> None:
    """Move the first sentence of a route's docstring into the summary, in place of the name of its function."""
    text = operation.pop("description", "")
    if match := _SENTENCE.match(text):
        operation["summary"], text = _plain(match[1]), text[match.end() :]
    if text:
        operation["description"] = text


def _plain_descriptions(schema: dict[str, Any]) -> None:
    for each in (schema, *schema.get("properties", {}).values()):
        if text := each.get("description"):
            each["description"] = "\n\n".join(map(_plain, text.split("\n\n")))


def _plain(text: str) -> str:
    """Return docstring text on one line, with Markdown code and JSON's ``null``."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text).replace("``", "`"))
