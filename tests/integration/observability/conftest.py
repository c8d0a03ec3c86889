"""A service with a finished run that logs JSON and sends traces to a receiver in this process."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import SecretStr

from speciate.cli.local_service import LocalService
from speciate.client import Client
from speciate.problems.loader import bundled, load_problem
from speciate.settings import Settings
from tests.support.http_server import wait_for

TOKEN = "a-token-that-must-stay-secret"


@dataclass
class Receiver:
    """Spans received over OTLP, by the name of their service."""

    address: str = ""
    spans: list[tuple[str, Span]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {each.key: each.value.string_value for each in sent.resource.attributes}
            self.spans += [(names["service.name"], span) for scope in sent.scope_spans for span in scope.spans]


@pytest.fixture(scope="package")
def receiver() -> Iterator[Receiver]:
    """An OTLP receiver over HTTP."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        received.address = f"http://127.0.0.1:{server.server_address[1]}"
        yield received
        server.shutdown()
        thread.join()


@dataclass
class Deployment:
    """A running service with a finished run."""

    stack: LocalService
    http: httpx.Client
    run_id: str
    request_id: str

    def log(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of a process' log."""
        lines = self.stack.log_of(name).read_text().splitlines()
        assert not (odd := [line for line in lines if not line.startswith("{")]), odd
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="package")
def deployment(receiver: Receiver) -> Iterator[Deployment]:
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    settings = Settings(
        data_dir=home / "data",
        port=0,
        evaluate_slots=1,
        generate_slots=2,
        token=SecretStr(TOKEN),
        log_format="json",
        log_level="info",
        otlp_endpoint=receiver.address,
    )
    try:
        with LocalService(settings) as stack:
            for _ in stack.start():
                pass
            headers = {"Authorization": f"Bearer {TOKEN}"}
            with httpx.Client(base_url=stack.settings.base_url, headers=headers, timeout=20, trust_env=False) as http:
                yield _after_a_run(stack, http)
    finally:
        shutil.rmtree(home)


def _after_a_run(stack: LocalService, http: httpx.Client) -> Deployment:
    with Client(stack.settings.base_url, TOKEN) as client:
        client.problems.add(load_problem(bundled()["sorting-network-8"]))
        client.policies.add({"slug": "mutator", "kind": "program_mutator"})
    body = {"problem": "sorting-network-8", "policy": "mutator", "budget": {"evaluations": 40}, "lanes": 2}
    answer = http.post("/v1/runs", json=body, headers={"X-Request-Id": "from-outside-1"})
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["id"]
    wait_for(lambda: http.get(f"/v1/runs/{run_id}").json()["state"] == "completed")
    return Deployment(stack, http, run_id, answer.headers["X-Request-Id"])
