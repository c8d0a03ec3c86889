"""Client addresses and schemes that nginx forwards to the API."""

from __future__ import annotations

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
from speciate.embedded.processes import GuardedProcesses
from tests.support.http_server import serve_app, wait_for

pytestmark = pytest.mark.skipif(not has_nginx(), reason="nginx is not installed (package nginx-light)")


async def _who(request: Request) -> Response:
    assert request.client is not None
    return JSONResponse({"address": request.client.host, "scheme": request.url.scheme})


@pytest.fixture(scope="module")
def proxy() -> Iterator[httpx.Client]:
    """The proxy of the compose file, before something that believes it as the API does and says what it was told."""
    home = Path(tempfile.mkdtemp(prefix="speciate-proxy-"))
    home.chmod(0o711)
    (home / "logs").mkdir()
    services = default_services(compose(environment={}))
    trusted = services["api"]["environment"]["FORWARDED_ALLOW_IPS"]
    try:
        with (
            serve_app(Starlette(routes=[Route("/who", _who)]), forwarded_allow_ips=trusted) as address,
            GuardedProcesses() as processes,
        ):
            graph = Topology(home, processes, services, {"api": [httpx.URL(address).port or 0], "proxy": [_port()]})
            processes.start(graph.command("proxy", 0, "proxy-1"))
            with httpx.Client(base_url=graph.url, trust_env=False) as client:
                wait_for(lambda: _answers(client))
                yield client
    finally:
        shutil.rmtree(home)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/who").is_success
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
