"""Access control, body limits and error responses."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from service.app import create_app
from speciate.domain.errors import ConfigurationError
from speciate.settings import Settings
from tests.integration.service.conftest import Api, Lab, refused
from tests.support.http_server import wait_for

pytestmark = pytest.mark.servers

JSON = {"Content-Type": "application/json"}
NOT_JSON: list[tuple[bytes, int | None]] = [
    (b"{", 1),
    (b'{\n"definition": }', 2),
    (b"\xff", None),
    (b"[" * 19_000, 1 if sys.version_info >= (3, 14) else None),  # since 3.14 it is read to its end
    (b'{"a": ' + b"9" * 5000 + b"}", None),
]


def test_a_token_is_asked_for_everywhere_but_at_the_doors(settings: Settings, serve: Callable[..., Api]) -> None:
    api = serve(settings.model_copy(update={"token": SecretStr("s3cret-of-operator"), "host": "0.0.0.0"}))
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic s3cret-of-operator"},
        {"Authorization": "Bearer"},
    ):
        for path in ("/v1/runs", "/v1/openapi.json", "/nowhere"):
            answer = api.get(path, headers=headers)
            assert "s3cret-of-operator" not in answer.text
            refused(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert api.get("/v1/runs", headers={"Authorization": "Bearer s3cret-of-operator"}).status_code == 200
    assert (
        api.get("/v1/runs", headers={"Authorization": "bearer s3cret-of-operator", "Host": "lab.example"}).status_code
        == 200
    )
    assert api.get("/healthz").status_code == api.get("/readyz").status_code == 200


def test_without_a_token_only_this_machine_is_served() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "lab.example", ""):
        with pytest.raises(ConfigurationError, match="SPECIATE_TOKEN"):
            create_app(Settings(host=host))
        with pytest.raises(ConfigurationError, match=r"fewer than 16 characters.*openssl rand -hex 32"):
            create_app(Settings(host=host, token=SecretStr("x" * 15)))
        create_app(Settings(host=host, token=SecretStr("x" * 16)))
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        create_app(Settings(host=host, token=SecretStr("x")))
        create_app(Settings(host=host))
    with pytest.raises(ConfigurationError, match="empty"):
        create_app(Settings(token=SecretStr("")))


ATTACHED = ("[::1].evil.example", "localhost:80@evil.example", "[::1]:80@evil.example", "localhost:evil.example")


def test_pages_of_other_origins_are_refused(api: Api) -> None:
    for host in (
        "evil.example",
        "evil.example:8420",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::2]:1",
        *ATTACHED,
    ):
        refused(api.get("/v1/runs", headers={"Host": host}), 403, "forbidden")
    for host in ("localhost", "localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert api.get("/v1/runs", headers={"Host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1", "http://["):
        refused(api.post("/v1/problem-sets", {}, headers={"Origin": origin}), 403, "forbidden")
    own = str(api.http.base_url)
    refused(api.post("/v1/problem-sets", {}, headers={"Origin": own}), 422, "invalid-input")


def test_requests_from_other_machines_are_refused_whatever_they_say() -> None:
    app = create_app(Settings())
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 1))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/strategies")

    refused(asyncio.run(ask()), 403, "forbidden")


def test_bodies_over_the_limit_are_refused(settings: Settings, serve: Callable[..., Api]) -> None:
    api = serve(settings.model_copy(update={"max_body_bytes": 1 << 16}))

    def chunks() -> Iterator[bytes]:
        for _ in range(70):
            yield b" " * 1024

    refused(api.post("/v1/problems", content=b" " * ((1 << 16) + 1), headers=JSON), 413, "too-large")
    refused(api.http.post("/v1/problems", content=chunks(), headers=JSON), 413, "too-large")
    refused(api.http.post("/v1/problems", content=b" " * (1 << 16), headers=JSON), 422, "malformed-json")
    assert api.get("/healthz").status_code == 200
    schema = api.get("/v1/schemas/problem.json")
    assert (schema.headers["content-type"], schema.json()["title"]) == ("application/schema+json", "problem.toml")


def test_what_is_not_json_is_refused(api: Api) -> None:
    for body, line in NOT_JSON:
        for path in ("/v1/problems", "/v1/policies", "/v1/runs", "/v1/problem-sets"):
            (error,) = refused(api.http.post(path, content=body, headers=JSON), 422, "malformed-json")["errors"]
            assert error["line"] == line
    refused(api.http.post("/v1/runs", content=b"[" * 200_000, headers=JSON), 413, "too-large")


def test_bodies_that_are_not_labelled_as_json_are_refused(api: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = api.http.post("/v1/runs", content=b"{}", headers={"Content-Type": kind})
        refused(answer, 415, "unsupported-media-type")
    deep = "[" * 150 + "]" * 150
    refused(api.http.post("/v1/runs", content=deep, headers=JSON), 422, "invalid-input")


def test_unknown_routes_and_methods_look_like_every_refusal(api: Api) -> None:
    for path in ("/nowhere", "/v1", "/v1/runs/", "/v1/<script>"):
        answer = api.get(path)
        assert "/v1/openapi.json" in refused(answer, 404, "not-found")["detail"]
    wrong = api.http.delete("/v1/runs")
    refused(wrong, 405, "method-not-allowed")
    assert "GET" in wrong.headers["allow"] or "POST" in wrong.headers["allow"]


def test_a_failure_of_ours_says_nothing_of_the_inside(settings: Settings) -> None:
    app: FastAPI = create_app(settings)

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError("the password is swordfish")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/broken")

    answer = asyncio.run(ask())
    refused(answer, 500, "internal")
    assert "swordfish" not in answer.text


def test_answers_cannot_be_taken_for_pages(lab: Lab) -> None:
    hostile = "<script>alert(1)</script>"
    definition = lab.api.get("/v1/problems/toy").json()["definition"] | {"title": hostile}
    answer = lab.api.post("/v1/problems", {"definition": definition})
    assert answer.status_code == 201
    for reply in (
        answer,
        lab.api.get("/v1/problems/toy"),
        lab.api.get(f"/v1/problems/{hostile}"),
        lab.api.get("/healthz"),
    ):
        assert reply.headers["content-type"] in {"application/json", "application/problem+json"}
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert "access-control-allow-origin" not in reply.headers


def test_the_api_is_ready_as_soon_as_postgresql_has_restarted(lab: Lab) -> None:
    assert lab.api.get("/readyz").status_code == 200
    with lab.stores.engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert [lab.api.get("/readyz").status_code for _ in range(3)] == [200, 200, 200]


def test_servers_that_are_away_are_named(settings: Settings, lab: Lab, serve: Callable[..., Api]) -> None:
    assert lab.api.get("/readyz").json()["status"] == "ready"
    no_redis = serve(settings.model_copy(update={"redis_url": SecretStr("redis://127.0.0.1:1/0")}))
    ready = no_redis.get("/readyz")  # an outage of Redis is one of every replica: without them, nothing would answer
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["redis"].startswith("does not respond: ")
    assert no_redis.get("/healthz").status_code == 200
    assert no_redis.get("/v1/runs").json()["items"] == []
    refused(no_redis.get("/v1/workers"), 503, "unavailable")
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}}
    started = no_redis.post("/v1/runs", body)
    assert (started.status_code, started.json()["state"]) == (202, "running")  # the reconciler sends its work again
    no_postgres = serve(settings.model_copy(update={"database_url": SecretStr("postgresql://u:pw@127.0.0.1:1/x")}))
    answer = no_postgres.get("/readyz")
    assert "PostgreSQL" in refused(answer, 503, "unavailable")["detail"]
    assert "pw" not in answer.text


def test_workers_and_their_work_are_listed(lab: Lab) -> None:
    run_id = lab.start()
    answer = lab.api.get("/v1/workers").json()
    assert answer["items"] == []
    assert [(item["run_id"], item["state"]) for item in answer["work"]] == [(str(run_id), "ready")]


def _process(settings: Settings, port: int, **options: Any) -> subprocess.Popen[Any]:
    urls = {
        "SPECIATE_DATABASE_URL": settings.database_url.get_secret_value(),
        "SPECIATE_REDIS_URL": settings.redis_url.get_secret_value(),
    }
    return subprocess.Popen([sys.executable, "-m", "service", "--port", str(port)], env=os.environ | urls, **options)


def test_a_port_in_use_ends_the_server_with_its_number(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _process(settings, port, stderr=subprocess.PIPE, text=True) as process:
            _, message = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"127.0.0.1:{port}: Address already in use. Choose another port with --port" in message


def test_a_server_stops_at_once_though_somebody_watches(lab: Lab, settings: Settings, tmp_path: Path) -> None:
    """SIGTERM ends streams; without that the server would wait for them, and they for the run."""
    run_id = lab.start()
    log = tmp_path / "log"
    with log.open("w") as out, _process(settings, 0, stderr=out, stdout=out) as process:
        try:
            wait_for(lambda: "running on" in log.read_text())
            url = log.read_text().partition("running on ")[2].split()[0]
            headers = {"Accept": "text/event-stream"}
            with httpx.stream("GET", f"{url}/v1/runs/{run_id}/events", headers=headers, timeout=20) as answer:
                chunks = answer.iter_bytes()
                next(chunks)
                process.send_signal(signal.SIGTERM)
                received = b"".join(chunks)
            assert b"event: end" not in received
            assert process.wait(20) in {0, -signal.SIGTERM}
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
