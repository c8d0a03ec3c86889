"""Every operation conforms to the OpenAPI document."""

from __future__ import annotations

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
