"""A run can be followed through the logs of all processes, and through one trace."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import psutil
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.observability.conftest import TOKEN, Deployment, Receiver
from tests.support.http_server import wait_for

pytestmark = pytest.mark.servers


def test_every_process_logs_the_ids_of_its_work(deployment: Deployment) -> None:
    run_id = deployment.run_id
    assert deployment.request_id == "from-outside-1"
    (request,) = [line for line in deployment.log("api") if line.get("request") == "from-outside-1"]
    assert (request["run"], request["message"][:17]) == (run_id, "POST /v1/runs 202")

    generated = [line for line in deployment.log("generate") if line.get("run") == run_id]
    evaluated = [line for line in deployment.log("evaluate") if line.get("run") == run_id]
    assert {line["kind"] for line in generated} == {"generate"}
    assert {line["kind"] for line in evaluated} >= {"evaluate"}
    assert all(UUID(line["work"]) for line in (*generated, *evaluated))
    firsts = {line["candidates"].partition("-")[0] for line in evaluated if line["kind"] == "evaluate"}
    assert "1" in firsts
    assert len(firsts) == len([line for line in evaluated if line["kind"] == "evaluate"])


def test_no_log_holds_a_secret(deployment: Deployment) -> None:
    # Secrets would most likely appear in failures: a connection, a refused request.
    deployment.http.get("/v1/runs", headers={"Authorization": f"Bearer {TOKEN}x", "X-Request-Id": 'two"lines'})
    settings = deployment.stack.settings
    assert settings.database_url is not None
    assert settings.redis_url is not None
    logs = {name: deployment.stack.log_of(name).read_text() for name in ("api", "generate", "evaluate", "control")}
    for name, text in logs.items():
        assert text, name
        for secret in (settings.database_url, settings.redis_url):
            assert secret.get_secret_value() not in text
        assert TOKEN not in text
        assert 'two\\"lines' not in text


def test_no_environment_holds_a_secret_that_its_process_does_not_need(deployment: Deployment) -> None:
    settings = deployment.stack.settings
    assert settings.database_url is not None
    database, token = settings.database_url.get_secret_value().encode(), TOKEN.encode()
    holding = {database: {"api", "generate", "control"}, token: {"api"}}
    for name, status in deployment.stack.poll().items():
        for process in (parent := psutil.Process(status.pid), *parent.children(recursive=True)):
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            for secret, names in holding.items():
                assert (secret in environment) <= (name in names), (name, process.cmdline())


def test_one_trace_holds_the_request_and_its_work(deployment: Deployment, receiver: Receiver) -> None:
    run = UUID(deployment.run_id)

    def found() -> dict[str, set[str]]:
        services: dict[str, set[str]] = {}
        for service, span in receiver.spans:
            if span.trace_id == run.bytes:
                services.setdefault(service, set()).add(span.name)
        return services

    wanted = {"generate", "evaluate", "policy", "evaluator"}
    wait_for(lambda: len(found()) == 2 and found()["speciate-worker"] >= wanted)
    assert found()["speciate-api"] == {"POST /v1/runs"}

    def spans_of_run() -> dict[bytes, Span]:
        return {span.span_id: span for _, span in receiver.spans if span.trace_id == run.bytes}

    # A span is sent when it ends, its children before it.
    wait_for(lambda: all(s.parent_span_id in spans_of_run() for s in spans_of_run().values() if s.parent_span_id))
    spans = spans_of_run()
    roots = [span for span in spans.values() if not span.parent_span_id]
    assert [span.name for span in roots] == ["POST /v1/runs"]
    names = {(spans[s.parent_span_id].name, s.name) for s in spans.values() if s.parent_span_id}
    assert names >= {("POST /v1/runs", "generate"), ("generate", "policy"), ("evaluate", "evaluator")}
    # Other requests have their own traces, or that of their client.
    sender = "4bf92f3577b34da6a3ce929d0e0e4736"
    deployment.http.get("/v1/problems", headers={"traceparent": f"00-{sender}-00f067aa0ba902b7-01"})
    wait_for(lambda: any(s.trace_id.hex() == sender for _, s in receiver.spans))
