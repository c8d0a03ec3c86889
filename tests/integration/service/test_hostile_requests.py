"""Malicious requests to every operation get a well-formed response and never a failure."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import sqlalchemy as sa

from service import openapi_schema
from speciate.settings import Settings
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Api, Lab, refused
from tests.support.http_server import wait_for

pytestmark = pytest.mark.servers

ROUNDS = 20
_WAIT = "wait_s"
"""Seconds that a request may wait for a result: none here, since a test need not wait for what never comes."""
STRANGE: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 2**64, 10**30, 1e308, -0.5, "", " ", "x", "\x00", "\u2028", "é" * 3, "x" * 5000,
    "'; --", "<script>", "../..", "%s%n", "{}", "toy", "toy@1", "toy@99999999999", "scripted",
    [], [[]], {}, {"": {}}, [None],
]  # fmt: skip


def _cursors(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return base64.urlsafe_b64encode(b"[" * 1497).decode()
    key = [rng.choice([1, -1, 2**70, "x", str(uuid4()), None, "\x00", 0.5]) for _ in range(rng.randrange(4))]
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _text(rng: random.Random, known: list[str]) -> str:
    value = rng.choice([*known, *known, *(s for s in STRANGE if isinstance(s, str | int | float)), str(uuid4())])
    return str(value)


def _body(rng: random.Random, schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> Any:
    """A value that is more or less what a schema describes."""
    if rng.random() < 0.12 or depth > 6:
        return rng.choice(STRANGE)
    if reference := schema.get("$ref"):
        return _body(rng, schemas[reference.rpartition("/")[2]], schemas, depth)
    if options := schema.get("anyOf"):
        return _body(rng, rng.choice(options), schemas, depth)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            wanted = schema.get("properties", {})
            required = schema.get("required", [])
            kept = [name for name in wanted if name in required or rng.random() < 0.3]
            made = {name: _body(rng, wanted[name], schemas, depth + 1) for name in kept}
            return made | ({_WAIT: 0} if made.get(_WAIT) or _WAIT in wanted else {})
        case "array":
            return [_body(rng, schema.get("items", {}), schemas, depth + 1) for _ in range(rng.randrange(3))]
        case "integer" | "number":
            return rng.choice([schema.get("minimum", 0), schema.get("maximum", 10), 1, 3])
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return rng.choice(["toy", "scripted", "a", "x >= 1"])
        case _:
            return rng.choice(STRANGE)


def _request(
    rng: random.Random, method: str, path: str, operation: dict[str, Any], known: list[str], schemas: dict[str, Any]
) -> dict[str, Any]:
    query, headers = {}, {}
    for parameter in operation.get("parameters", []):
        name, place = parameter["name"], parameter["in"]
        text = _cursors(rng) if name == "cursor" and rng.random() < 0.7 else _text(rng, known)
        if place == "path":
            path = path.replace(f"{{{name}}}", quote(text or "x", safe=""))
        elif place == "query" and name != "wait" and rng.random() < 0.4:
            query[name] = text
        elif place == "header" and rng.random() < 0.4:
            headers[name] = text.encode().replace(b"\x00", b"").strip() or b"x"
    request: dict[str, Any] = {"method": method.upper(), "url": path, "params": query, "headers": headers}
    if body := operation.get("requestBody"):
        value = _body(rng, body["content"]["application/json"]["schema"], schemas)
        request["content"] = json.dumps(value).encode()
        headers["Content-Type"] = "application/json"
    return request


@pytest.mark.parametrize("seed", range(1))
def test_no_request_makes_the_service_fail(lab: Lab, seed: int) -> None:
    rng = random.Random(seed)
    run_id = lab.start(9)
    lab.work()
    candidate = lab.stores.queries.candidate_of(run_id, 2)
    known = [str(run_id), str(candidate.id), str(candidate.rollout_id), "toy", "toy@1", "scripted", "2", "confirmed"]
    document = openapi_schema.openapi_document(lab.api.app)
    schemas = document["components"]["schemas"]
    codes: set[int] = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for _ in range(ROUNDS):
                request = _request(rng, method, path, operation, known, schemas)
                answer = lab.api.http.request(**request)
                codes.add(answer.status_code)
                assert answer.status_code < 500 or (answer.status_code == 503 and path.endswith(":ping")), (
                    f"{answer.status_code} {answer.text} to {request}"
                )
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == "application/problem+json", request
                    assert answer.json()["status"] == answer.status_code
    assert {200, 404, 422} <= codes
    wait_for(lambda: lab.api.hub.streams == 0)


def test_slow_statement_is_cancelled(settings: Settings, stores: Stores, serve: Callable[..., Api]) -> None:
    served = serve(settings.model_copy(update={"statement_s": 0.3}))
    with stores.engine.begin() as connection:
        connection.execute(sa.text("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"))
        details = refused(served.get("/v1/runs"), 503, "statement-too-long")
        assert "SPECIATE_STATEMENT_S" in details["detail"]
        assert connection.execute(sa.text("SHOW statement_timeout")).scalar() == "0"  # as workers have it
    assert served.get("/v1/runs").status_code == 200
