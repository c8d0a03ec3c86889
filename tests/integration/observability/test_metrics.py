"""``/metrics`` is correct, bounded, and available while a server is down."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.observability.conftest import Deployment
from tests.support.http_server import wait_for

pytestmark = pytest.mark.servers

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def total(found: Samples, name: str, **labels: str) -> float:
    return sum(v for (n, ls), v in found.items() if n == name and set(labels.items()) <= set(ls))


def scrape(deployment: Deployment) -> Samples:
    answer = deployment.http.get("/metrics")
    assert answer.status_code == 200
    return samples(answer.text)


def test_a_run_is_in_the_metrics(deployment: Deployment) -> None:
    # Workers send their counts once a second, and a reading is cached for some seconds.
    wait_for(lambda: total(scrape(deployment), "speciate_runs", state="completed") == 1)
    for kind in ("generate", "evaluate"):  # by different processes, so at different times
        wait_for(lambda kind=kind: total(scrape(deployment), "speciate_work_units_total", kind=kind) > 0)
    found = scrape(deployment)
    run = deployment.http.get(f"/v1/runs/{deployment.run_id}").json()
    spent = run["spent"]["evaluations"]
    assert total(found, "speciate_candidates_total") == spent == 40
    assert total(found, "speciate_budget_spent_total", resource="evaluations") == spent
    ran = total(found, "speciate_evaluations_total")
    assert ran > 0
    assert total(found, "speciate_evaluations_total", tier="none") == 0
    assert total(found, "speciate_evaluation_seconds_count") == ran
    asked = total(found, "speciate_policy_request_seconds_count", policy="mutator")
    assert asked == total(found, "speciate_policy_request_seconds_bucket", policy="mutator", le="+Inf") > 0
    assert total(found, "speciate_work_units_total", result="done") == total(found, "speciate_work_seconds_count")
    assert total(found, "speciate_workers", queue="evaluate") == 1
    assert total(found, "speciate_up") == 2
    assert total(found, "speciate_http_requests_total", route="/v1/runs", method="POST", status="202") == 1
    assert total(found, "speciate_reconciler_age_seconds") < 20


def test_unknown_paths_and_methods_create_no_series(deployment: Deployment) -> None:
    before = len(scrape(deployment))
    for i in range(20):
        assert deployment.http.get(f"/nowhere/{i}").status_code == 404
        assert deployment.http.request(f"ODD{i}", "/v1/runs").status_code == 400  # not an HTTP method
        assert deployment.http.request("PURGE", f"/v1/runs?{i}").status_code == 405
        deployment.http.get(f"/v1/runs/00000000-0000-0000-0000-0000000000{i:02}")
    found = scrape(deployment)
    assert len(found) - before < 60
    routes = {dict(labels)["route"] for name, labels in found if name == "speciate_http_requests_total"}
    assert {"unmatched", "/v1/runs/{run_id}"} <= routes
    assert not {route for route in routes if "nowhere" in route}


def test_metrics_require_the_token(deployment: Deployment) -> None:
    assert deployment.http.get("/metrics", headers={"Authorization": ""}).status_code == 401
