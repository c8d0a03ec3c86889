"""Tokens: scopes, expiry, rate limits and the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.exc import DBAPIError

from service import responses
from service.middleware import access_control
from speciate.problems.template import example
from speciate.settings import Settings
from speciate.storage.database import connect
from speciate.storage.stores import Stores
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID
from tests.integration.service.conftest import Api, Lab, refused, scripted
from tests.support.runs import toy_problem

pytestmark = pytest.mark.servers

OPERATOR = {"Authorization": "Bearer 0perat0r"}


@pytest.fixture
def lab(settings: Settings, serve: Callable[..., Api]) -> Api:
    return serve(settings.model_copy(update={"token": SecretStr("0perat0r"), "rate_limit": 0.0}))


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


def make(api: Api, scope: str = "read", *, project: str = "default", **more: Any) -> dict[str, Any]:
    headers = {**OPERATOR, "Speciate-Project": project}
    answer = api.post("/v1/tokens", {"name": scope, "scope": scope, **more}, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_metrics_require_the_operator_or_the_metrics_token(settings: Settings, serve: Callable[..., Api]) -> None:
    secrets = {"token": SecretStr("0perat0r"), "metrics_token": SecretStr("m3ter"), "rate_limit": 0.0}
    api = serve(settings.model_copy(update=secrets))
    assert "speciate_up" in api.get("/metrics", headers=OPERATOR).text
    assert "speciate_up" in api.get("/metrics", headers=bearer("m3ter")).text
    assert api.get("/metrics", headers=bearer(make(api, "admin")["token"])).status_code == 403
    assert api.get("/metrics").status_code == api.get("/v1/runs", headers=bearer("m3ter")).status_code == 401


def test_token_is_shown_once_and_stored_as_a_hash(lab: Api, stores: Stores) -> None:
    made = make(lab)
    assert made["token"].startswith("spc_")
    assert len(made["token"]) == 68
    assert made["token"].startswith(made["prefix"])
    (listed,) = lab.get("/v1/tokens", headers=OPERATOR).json()["items"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    secret = made["token"].removeprefix("spc_")
    with stores.engine.connect() as connection:
        for table in ("tokens", "audit", "sessions"):
            for row in connection.execute(sa.text(f"SELECT t::text FROM {table} t")).scalars():
                assert secret[8:] not in row
    identity = lab.get("/v1/whoami", headers=bearer(made["token"])).json()
    assert identity == {
        "name": f"token {made['prefix']} read",
        "project": "default",
        "scope": "read",
        "all_projects": False,
    }


def test_revoked_and_expired_tokens_are_rejected_by_every_replica(
    lab: Api, settings: Settings, serve: Callable[..., Api], stores: Stores
) -> None:
    other = serve(settings.model_copy(update={"token": SecretStr("0perat0r")}))
    made = make(lab, expires_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    for api in (lab, other):
        assert api.get("/v1/runs", headers=bearer(made["token"])).status_code == 200
    revoked = lab.post(f"/v1/tokens/{made['id']}:revoke", headers=OPERATOR).json()
    assert revoked["revoked_at"] is not None
    assert revoked["last_used_at"] is not None
    for api in (other, lab):
        refused(api.get("/v1/runs", headers=bearer(made["token"])), 401, "unauthorized")
    short = make(lab, expires_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE tokens SET expires_at = now() WHERE id = :id"), {"id": short["id"]})
    refused(lab.get("/v1/runs", headers=bearer(short["token"])), 401, "unauthorized")
    past = {"name": "x", "expires_at": "2020-01-01T00:00:00Z"}
    refused(lab.post("/v1/tokens", past, headers=OPERATOR), 422, "invalid-input")
    refused(lab.post("/v1/tokens", {"name": "a\nb"}, headers=OPERATOR), 422, "invalid-input")


def test_scopes_include_one_another(lab: Api) -> None:
    read, submit, admin = (make(lab, scope)["token"] for scope in ("read", "submit", "admin"))
    body = {"definition": scripted().model_dump(mode="json")}
    for token, status in ((read, 403), (submit, 201), (admin, 200)):
        assert lab.post("/v1/policies", body, headers=bearer(token)).status_code == status
        assert lab.get("/v1/policies", headers=bearer(token)).status_code == 200
    for token, status in ((read, 403), (submit, 403), (admin, 200)):
        assert lab.get("/v1/tokens", headers=bearer(token)).status_code == status
        assert lab.get("/v1/audit", headers=bearer(token)).status_code == status
    assert "submit" in refused(lab.post("/v1/policies", body, headers=bearer(read)), 403, "forbidden")["detail"]
    # An admin creates tokens of its project, but neither projects nor quotas.
    assert lab.post("/v1/tokens", {"name": "mine"}, headers=bearer(admin)).json()["project"] == "default"
    refused(lab.post("/v1/projects", {"slug": "mine"}, headers=bearer(admin)), 403, "forbidden")
    refused(lab.post("/v1/projects/default:quota", {"concurrent_runs": 9}, headers=bearer(admin)), 403, "forbidden")
    refused(lab.get("/v1/audit?everything=true", headers=bearer(admin)), 403, "forbidden")


def test_only_the_operator_may_use_keys_of_the_workers(lab: Api) -> None:
    definition = {
        "slug": "hosted", "kind": "openai_compatible", "base_url": "https://8.8.8.8/v1", "model": "m",
        "api_key_env": "POLICY_KEY_HOSTED",
    }  # fmt: skip
    body = {"definition": definition, "check": False}
    for scope in ("submit", "admin"):
        theirs = bearer(make(lab, scope)["token"])
        told = refused(lab.post("/v1/policies", body, headers=theirs), 403, "forbidden")["detail"]
        assert "POLICY_KEY_HOSTED" in told
    assert lab.get("/v1/policies", headers=OPERATOR).json()["items"] == []
    assert lab.post("/v1/policies", body, headers=OPERATOR).status_code == 201


def test_token_is_bound_to_its_project_and_operator_selects(lab: Api) -> None:
    assert lab.post("/v1/projects", {"slug": "a", "title": "The a"}, headers=OPERATOR).status_code == 201
    refused(lab.post("/v1/projects", {"slug": "a"}, headers=OPERATOR), 409, "conflict")
    token = make(lab, "admin", project="a")["token"]
    assert lab.get("/v1/whoami", headers=bearer(token)).json()["project"] == "a"
    refused(lab.get("/v1/runs", headers=bearer(token, **{"Speciate-Project": "default"})), 403, "forbidden")
    refused(lab.get("/v1/runs", headers={**OPERATOR, "Speciate-Project": "nowhere"}), 404, "not-found")
    assert [p["slug"] for p in lab.get("/v1/projects", headers=bearer(token)).json()["items"]] == ["a"]
    refused(lab.get("/v1/projects/default", headers=bearer(token)), 404, "not-found")
    assert [p["slug"] for p in lab.get("/v1/projects", headers=OPERATOR).json()["items"]] == ["default", "a"]


def test_local_programs_select_a_project(api: Api) -> None:
    assert api.get("/v1/whoami").json() == {
        "name": "local",
        "project": "default",
        "scope": "admin",
        "all_projects": True,
    }
    assert api.post("/v1/projects", {"slug": "a"}).status_code == 201
    assert api.get("/v1/whoami", headers={"Speciate-Project": "a"}).json()["project"] == "a"
    made = api.post("/v1/tokens", {"name": "x"}, headers={"Speciate-Project": "a"}).json()
    assert api.get("/v1/whoami", headers=bearer(made["token"])).json()["project"] == "a"
    refused(api.get("/v1/whoami", headers=bearer("spc_" + "0" * 64)), 401, "unauthorized")
    assert api.get("/v1/whoami", headers=bearer("left over in the environment")).json()["name"] == "local"


def test_audit_log_is_complete_and_immutable(lab: Api, stores: Stores) -> None:
    made = make(lab, "submit")
    lab.get("/v1/runs", headers=bearer(made["token"]))
    lab.post("/v1/policies", {"definition": scripted().model_dump(mode="json")}, headers=bearer(made["token"]))
    lab.post("/v1/runs/019a0000-0000-7000-8000-000000000000:pause", headers=bearer(made["token"]))
    lab.get("/v1/runs", headers=bearer("spc_" + "0" * 64))
    lab.get("/v1/runs")
    entries = lab.get("/v1/audit?everything=true", headers=OPERATOR).json()["items"]
    found = [(e["principal"].split()[0], e["action"], e["status"], e["project"]) for e in reversed(entries)]
    assert found == [
        ("operator", "POST /v1/tokens", 201, "default"),
        ("token", "POST /v1/policies", 201, "default"),
        ("token", "POST /v1/runs/{run_id}:pause", 404, "default"),
        ("anonymous", "GET /v1/runs", 401, None),
    ]
    assert entries[-1]["object"] == f"-> /v1/tokens/{made['id']}"
    assert entries[1]["object"] == "run_id=019a0000-0000-7000-8000-000000000000"
    assert {e["address"] for e in entries} == {"127.0.0.1"}
    page = lab.get("/v1/audit?limit=2", headers=OPERATOR).json()
    rest = lab.get("/v1/audit", params={"cursor": page["next_cursor"]}, headers=OPERATOR).json()
    assert [e["id"] for e in [*page["items"], *rest["items"]]] == [e["id"] for e in entries if e["project"]]
    for change in ("UPDATE audit SET principal = 'x'", "DELETE FROM audit", "TRUNCATE audit"):
        with pytest.raises(DBAPIError, match="append-only"), stores.engine.begin() as connection:
            connection.execute(sa.text(change))


def test_stream_ends_when_its_token_is_revoked(lab: Api, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_control, "_REVALIDATE_S", 0.0)
    stores.catalog.add_problem(toy_problem())
    stores.catalog.add_policy(scripted())
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}, "lanes": 1}
    run_id = lab.post("/v1/runs", body, headers=OPERATOR).json()["id"]
    made = make(lab)
    headers = bearer(made["token"], Accept="text/event-stream")
    with lab.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as answer:
        chunks = answer.iter_raw()
        assert answer.status_code == 200
        next(chunks)
        stores.tokens.revoke(DEFAULT_PROJECT_ID, UUID(made["id"]))
        Lab(lab, stores).work()
        received = b"".join(chunks)
    assert stores.runs.get(UUID(run_id)).state.ended
    assert b"event: end" not in received


def test_export_of_a_revoked_token_is_visibly_incomplete(
    lab: Api, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_control, "_REVALIDATE_S", 0.0)
    stores.catalog.add_problem(toy_problem())
    stores.catalog.add_policy(scripted())
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}}
    run_id = lab.post("/v1/runs", body, headers=OPERATOR).json()["id"]
    made = make(lab)

    def lines(_: object) -> Iterator[str]:
        yield "{}\n"
        stores.tokens.revoke(DEFAULT_PROJECT_ID, UUID(made["id"]))
        yield "{}\n"

    monkeypatch.setattr(responses, "_json_lines", lines)
    with pytest.raises(httpx.RemoteProtocolError):
        lab.get(f"/v1/runs/{run_id}/export", headers=bearer(made["token"]))


@pytest.mark.parametrize("revoked", [False, True])
def test_failed_attempts_do_not_affect_open_streams(
    lab: Api, stores: Stores, monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    monkeypatch.setattr(access_control, "_REVALIDATE_S", 0.0)
    stores.catalog.add_problem(toy_problem())
    stores.catalog.add_policy(scripted())
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}, "lanes": 1}
    run_id = lab.post("/v1/runs", body, headers=OPERATOR).json()["id"]
    made = make(lab)
    headers = {**(bearer(made["token"]) if revoked else OPERATOR), "Accept": "text/event-stream"}
    with lab.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        guesses = [lab.get("/v1/strategies", headers=bearer(f"guess-{i}")).status_code for i in range(60)]
        assert guesses[-1] == 429
        stores.tokens.revoke(DEFAULT_PROJECT_ID, UUID(made["id"]))
        Lab(lab, stores).work()
        received = b"".join(chunks)
    assert (b"event: end" in received) is not revoked


def test_rate_limits_of_tokens_and_failed_attempts(settings: Settings, serve: Callable[..., Api]) -> None:
    update = {"token": SecretStr("0perat0r"), "rate_limit": 0.5, "rate_burst": 5}
    first, second = (serve(settings.model_copy(update=update)) for _ in range(2))
    one, two = make(first)["token"], make(first)["token"]
    statuses = [api.get("/v1/strategies", headers=bearer(one)).status_code for api in [first, second] * 4]
    assert statuses[:5] == [200] * 5
    assert 429 in statuses
    answer = first.get("/v1/strategies", headers=bearer(one))
    refused(answer, 429, "too-many-requests")
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    assert second.get("/v1/strategies", headers=bearer(two)).status_code == 200
    assert {first.get("/v1/strategies", headers=OPERATOR).status_code for _ in range(9)} == {200}
    guesses = [first.get("/v1/strategies", headers=bearer(f"guess {i}")).status_code for i in range(25)]
    assert guesses[0] == 401
    assert guesses[-1] == 429
    # From here on even the correct operator token is rejected, but generated tokens are still checked.
    assert second.get("/v1/strategies", headers=OPERATOR).status_code == 429
    assert second.get("/v1/strategies", headers=bearer(two)).status_code == 200


def test_failed_attempts_of_others_do_not_block_a_long_operator_token(
    serve: Callable[..., Api], settings: Settings
) -> None:
    token = "0perat0r" * 4
    api = serve(settings.model_copy(update={"token": SecretStr(token)}))
    guesses = [api.get("/v1/strategies", headers=bearer(f"guess {i}")).status_code for i in range(25)]
    assert (guesses[0], guesses[-1]) == (401, 429)
    assert api.get("/v1/strategies", headers=bearer(token)).status_code == 200


def test_rate_limits_are_off_without_valkey(settings: Settings, serve: Callable[..., Api]) -> None:
    update = {"token": SecretStr("0perat0r"), "rate_limit": 0.5, "rate_burst": 1}
    api = serve(settings.model_copy(update={**update, "redis_url": SecretStr("redis://127.0.0.1:1/0")}))
    token = make(api)["token"]
    assert {api.get("/v1/strategies", headers=bearer(token)).status_code for _ in range(5)} == {200}


@pytest.fixture
def allow(settings: Settings) -> Iterator[Callable[[bool], None]]:
    """Ends all connections to the database, and says whether there may be new ones."""
    assert settings.database_url is not None
    url = sa.make_url(settings.database_url.get_secret_value())
    admin = connect(url.set(database="postgres").render_as_string(hide_password=False)).execution_options(
        isolation_level="AUTOCOMMIT"
    )

    def allow(allowed: bool) -> None:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {url.database} WITH ALLOW_CONNECTIONS {allowed}")
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.exec_driver_sql(end, (url.database,))

    yield allow
    allow(True)
    admin.dispose()


def test_ownership_lookup_survives_a_database_restart(api: Api, allow: Callable[[bool], None]) -> None:
    def ask() -> int:
        return api.get(f"/v1/runs/{uuid4()}").status_code

    assert ask() == 404
    allow(True)
    assert ask() == 404
    api.app.state.app_state.owners.retry_for_s = 0.1
    allow(False)
    assert ask() == 503


def test_audit_does_not_wait_for_an_unavailable_database(
    api: Api, allow: Callable[[bool], None], stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    app_state = api.app.state.app_state
    app_state.stores.catalog.retry_for_s = 0.2
    problem = toy_problem().model_dump(mode="json")
    allow(False)
    before = time.monotonic()
    assert api.post("/v1/problems", {"definition": problem}).status_code == 503
    # A form answers by itself: what it was told is in its page.
    files = example()
    form = {"toml": files.pop("problem.toml"), **{f"file:{name}": text for name, text in files.items()}}
    page = api.http.post("/problems", data=form, headers={"Origin": str(api.http.base_url)})
    assert "PostgreSQL does not respond" in page.text
    assert time.monotonic() - before < 10
    allow(True)
    lost = [record.getMessage() for record in caplog.records if "audit entry not stored" in record.getMessage()]
    assert [("POST /v1/problems" in line, "POST /problems'" in line) for line in lost] == [(True, False), (False, True)]
    fields = ("principal='local'", "token_id=None", "project_id=", "object=''", "address='127.0.0.1'")
    for line in lost:
        assert all(field in line for field in fields)
    assert "status=503" in lost[0]
    # It is written again as soon as it can be.
    app_state.stores.catalog.retry_for_s = 5.0
    assert api.post("/v1/problems", {"definition": problem}).status_code == 201
    (entry,) = stores.audit.list(project=None).items
    assert (entry.action, entry.status) == ("POST /v1/problems", 201)


def test_requests_without_a_token_do_not_fill_the_audit_log(lab: Api, stores: Stores) -> None:
    for _ in range(60):
        assert lab.post("/v1/problems", {}, headers=bearer("spt_wrong")).status_code in {401, 429}
    anonymous = [entry for entry in stores.audit.list(project=None, limit=100).items if entry.principal == "anonymous"]
    assert 1 <= len(anonymous) < 40
