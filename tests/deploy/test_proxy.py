"""What nginx forwards to the API, and what it answers itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.topology.compose import compose, default_services
from benchmarks.topology.processes import Topology, has_nginx
from service.problem_details import PROBLEM_JSON, TYPE_PREFIX, ProblemDetails
from speciate.client.responses import raise_for_error
from speciate.domain.errors import TooLargeError, UnavailableError
from speciate.embedded.processes import GuardedProcesses
from tests.support.http_server import serve_app, wait_for

pytestmark = pytest.mark.skipif(not has_nginx(), reason="nginx is not installed (package nginx-light)")


async def _who(request: Request) -> Response:
    assert request.client is not None
    return JSONResponse({"address": request.client.host, "scheme": request.url.scheme})


async def _change(_: Request) -> Response:
    await asyncio.sleep(2)  # as one that waits for a model
    return JSONResponse({})


@contextlib.contextmanager
def _proxy(*replicas: int, read_timeout_s: int = 90) -> Iterator[httpx.Client]:
    """The proxy of the compose file, before the replicas at these ports."""
    home = Path(tempfile.mkdtemp(prefix="speciate-proxy-"))
    home.chmod(0o711)
    (home / "logs").mkdir()
    services = default_services(compose(environment={}))
    try:
        with GuardedProcesses() as processes:
            graph = Topology(home, processes, services, {"api": list(replicas), "proxy": [_port()]})
            command = graph.command("proxy", 0, "proxy-1")
            file = home / "nginx" / "nginx.conf"
            text = file.read_text()
            assert "proxy_read_timeout 90s;" in text
            file.write_text(text.replace("proxy_read_timeout 90s;", f"proxy_read_timeout {read_timeout_s}s;"))
            processes.start(command)
            with httpx.Client(base_url=graph.url, trust_env=False) as client:
                wait_for(lambda: _answers(client))
                yield client
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def replica() -> Iterator[int]:
    """Something that believes the proxy as the API does, and says what it was told."""
    trusted = default_services(compose(environment={}))["api"]["environment"]["FORWARDED_ALLOW_IPS"]
    app = Starlette(routes=[Route("/who", _who), Route("/change", _change, methods=["POST"])])
    with serve_app(app, forwarded_allow_ips=trusted) as address:
        yield httpx.URL(address).port or 0


@pytest.fixture(scope="module")
def proxy(replica: int) -> Iterator[httpx.Client]:
    with _proxy(replica) as client:
        yield client


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthy").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("sent", ["192.0.2.1", "192.0.2.1, 192.0.2.2", "127.0.0.1, 192.0.2.1", "nonsense", ""])
def test_clients_cannot_forge_their_address(proxy: httpx.Client, sent: str) -> None:
    assert proxy.get("/who", headers={"X-Forwarded-For": sent}).json()["address"] == "127.0.0.1"
    twice = [("X-Forwarded-For", sent), ("X-Forwarded-For", "192.0.2.3")]
    assert proxy.get("/who", headers=twice).json()["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("sent", "scheme"), [({}, "http"), ({"X-Forwarded-Proto": "https"}, "https"), ({"X-Forwarded-Proto": "ws"}, "http")]
)
def test_forwarded_scheme_reaches_the_service(proxy: httpx.Client, sent: dict[str, str], scheme: str) -> None:
    assert proxy.get("/who", headers=sent).json()["scheme"] == scheme


def test_errors_of_the_proxy_are_those_of_the_api(proxy: httpx.Client) -> None:
    with _proxy(_port(), _port()) as unserved:
        for response, error in (
            (unserved.get("/v1/runs"), UnavailableError),
            (unserved.post("/v1/runs", json={}), UnavailableError),
            (proxy.post("/who", content=bytes(18 << 20)), TooLargeError),
        ):
            assert response.headers["Content-Type"] == PROBLEM_JSON
            details = ProblemDetails.model_validate_json(response.content)
            assert (details.type, details.title) == (TYPE_PREFIX + error.slug, error.title)
            assert details.status == response.status_code == (502 if error is UnavailableError else 413)
            with pytest.raises(error, match=re.escape(details.detail)):
                raise_for_error(response)


def test_frozen_replica_delays_reads_and_no_change_is_repeated(replica: int) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as frozen,  # connections wait in its backlog
        _proxy(replica, frozen.getsockname()[1], read_timeout_s=1) as client,
    ):
        assert all(client.get("/who").is_success for _ in range(4))
        outcomes = set()
        for _ in range(2):
            try:
                outcomes.add(client.post("/change", timeout=4).status_code)
            except httpx.ReadTimeout:
                outcomes.add(0)
        assert outcomes == {200, 0}, "longer than a read, and not sent to the other replica"
