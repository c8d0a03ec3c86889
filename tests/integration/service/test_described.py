"""Every operation conforms to the OpenAPI document."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from benchmarks.attacks.described import ask_everything
from tests.integration.service.conftest import Lab
from tests.support.http_server import wait_for

pytestmark = pytest.mark.servers

EXAMPLES = 1


def test_every_operation_conforms_to_the_document(lab: Lab) -> None:
    run_id = lab.start(9)
    lab.work()
    candidate = lab.stores.queries.candidate_of(run_id, 2)
    hook = lab.api.post("/v1/webhooks", {"url": "https://8.8.8.8/"}).json()["id"]
    known = {
        "run_id": str(run_id),
        "candidate_id": str(candidate.id),
        "rollout_id": str(candidate.rollout_id),
        "webhook_id": hook,
        "name": "toy",
        "number": "2",
    }
    statuses = ask_everything(str(lab.api.http.base_url), examples=EXAMPLES, known=known)
    assert {200, 404, 422} <= set(statuses)
    wait_for(lambda: lab.api.hub.streams == 0)


def test_no_reading_operation_ignores_an_unknown_query_parameter(lab: Lab) -> None:
    lenient = {"/healthz", "/readyz", "/metrics", "/v1/signing-key", "/v1/workers"}
    paths = [path for path, each in lab.api.get("/v1/openapi.json").json()["paths"].items() if "get" in each]
    assert len(paths) > 40
    for path in set(paths) - lenient:
        answer = lab.api.get(re.sub(r"\{[^}]*\}", str(uuid4()), path) + "?foo=1")
        assert answer.status_code == 404 or "foo: is not a query parameter" in answer.json()["detail"], (path, answer)
    detail = lab.api.get("/v1/runs?tournament=t3").json()["detail"]
    assert "tournament: is not a query parameter: expected cursor, group, limit" in detail, detail
