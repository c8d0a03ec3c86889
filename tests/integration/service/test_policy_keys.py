"""API keys of endpoints over HTTP: stored once, used by workers, never returned."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from speciate.policies import build_client
from speciate.policies.kind import ClientContext
from speciate.policies.pool import ClientPool
from speciate.runs.executor import WorkExecutor
from speciate.settings import Settings
from speciate.storage.access.secrets import PolicyKeyStore
from speciate.storage.stores import Stores, open_stores
from tests.integration.service.conftest import Api, refused
from tests.support.openai_endpoint import serve as openai_endpoint
from tests.support.runs import ToyEvaluator, toy_problem

pytestmark = pytest.mark.servers

KEY = "sk-first-0123456789abcdef"
NEXT = "sk-second-fedcba9876543210"


def _definition(url: str, **changes: Any) -> dict[str, Any]:
    options = {"max_retries": 0}
    return {"slug": "hosted", "kind": "openai_compatible", "base_url": url, "model": "m", "options": options} | changes


def _dump(stores: Stores) -> str:
    metadata = sa.MetaData()
    metadata.reflect(stores.engine)
    assert "policy_keys" in metadata.tables
    with stores.engine.connect() as connection:
        return "\n".join(
            repr(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(sa.select(table))
        )


def test_api_key_is_used_but_never_returned(api: Api, stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stores.catalog.add_problem(toy_problem())
    with openai_endpoint() as endpoint:
        endpoint.key = KEY
        body = {"definition": _definition(endpoint.url), "api_key": KEY}
        first = api.post("/v1/policies", body)
        assert first.status_code == 201, first.text
        assert api.post("/v1/policies/hosted:ping").status_code == 200
        run = {"problem": "toy", "policy": "hosted", "budget": {"evaluations": 3}, "lanes": 1, "batch": 2}
        run["strategy"] = "vector_evolution"  # whose only client is that of the policy
        run_id = api.post("/v1/runs", run).json()["id"]
        around = ClientContext(Settings(allowed_networks=("loopback",)).network, stores.policy_keys.open)
        clients = ClientPool(around)
        executor = WorkExecutor(stores.work, stores.signals, ToyEvaluator(), clients)
        while waiting := stores.runs.work_in_flight(limit=1):
            assert executor.execute(waiting[0].work_id)
        for _, client in clients._clients.values():
            client.close()  # type: ignore[attr-defined]
        assert api.get(f"/v1/runs/{run_id}").json()["state"] == "completed"
        assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {KEY}"}

        endpoint.key = NEXT
        told = refused(api.post("/v1/policies/hosted:ping"), 503, "policy-unavailable")["detail"]
        assert "Bearer [key]" in told  # the endpoint repeats what it was sent
        exchanged = api.post("/v1/policies", {**body, "api_key": NEXT})
        assert (exchanged.status_code, exchanged.json()) == (200, first.json())
        assert api.post("/v1/policies/hosted:ping").status_code == 200

    shown = [first.text, told, caplog.text, _dump(stores)]
    for path in ("/v1/policies", "/v1/policies/hosted", "/policies", "/policies/hosted", "/v1/openapi.json",
                 f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/export", f"/v1/runs/{run_id}/rollouts", f"/runs/{run_id}",
                 f"/v1/runs/{run_id}/events"):  # fmt: skip
        answer = api.get(path)
        assert answer.status_code == 200, path
        shown.append(answer.text)
    assert all(key not in text for text in shown for key in (KEY, NEXT))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"api_key": ""}, "api_key"),
    ({"api_key": "two words"}, "without spaces"),
    ({"api_key": "line\nbreak"}, "without spaces"),
    ({"api_key": "k" * 5000}, "api_key"),
    ({"api_key": 7}, "api_key"),
    ({"api_key": KEY, "definition": {"api_key_env": "POLICY_KEY_X"}}, "without api_key_env"),
    ({"api_key": KEY, "definition": {"kind": "program_mutator"}}, "openai_compatible"),
    ({"definition": {"api_key_env": "SPECIATE_DATABASE_URL"}}, "begins with POLICY_KEY"),
    ({"definition": {"api_key_id": "0" * 36}}, "set by the service"),
    ({"definition": {"base_url": "http://169.254.169.254/v1"}}, "link-local"),
    ({"definition": {"base_url": "http://10.0.0.7:8000/v1"}}, "SPECIATE_ALLOWED_NETWORKS"),
    ({"definition": {"base_url": "http://0xa9fea9fe/v1"}}, "link-local"),
    ({"definition": {"base_url": "http://me:pw@8.8.8.8/v1"}}, "password"),
]


def test_definitions_that_leak_secrets_are_rejected(api: Api) -> None:
    for changes, expected in REFUSED:
        body = changes | {"definition": _definition("https://8.8.8.8/v1") | changes.get("definition", {})}
        answer = api.post("/v1/policies", body)
        assert expected in str(refused(answer, 422, "invalid-input")), changes
        assert KEY not in answer.text
    assert api.get("/v1/policies").json()["items"] == []


def test_missing_or_wrong_secret_key_is_named(settings: Settings, serve: Callable[..., Api], stores: Stores) -> None:
    with openai_endpoint() as endpoint:
        endpoint.key = KEY
        body = {"definition": _definition(endpoint.url), "api_key": KEY}
        keyless = serve(settings.model_copy(update={"secret_key": None}))
        assert "SPECIATE_SECRET_KEY" in refused(keyless.post("/v1/policies", body), 503, "secret-key")["detail"]
        assert keyless.get("/v1/policies").json()["items"] == []
        assert serve(settings).post("/v1/policies", body).status_code == 201
        another = serve(settings.model_copy(update={"secret_key": SecretStr("n" * 32)}))
        for api in (keyless, another):
            told = refused(api.post("/v1/policies/hosted:ping"), 503, "secret-key")["detail"]
            assert "SPECIATE_SECRET_KEY" in told
        # Key rotation: add the new key before the old one, encrypt again, drop the old key.
        old = (settings.secret_key or SecretStr("")).get_secret_value()
        both = settings.model_copy(update={"secret_key": SecretStr(f"{'n' * 32},{old}")})
        assert PolicyKeyStore(stores.engine, both.sealer).renew() == 1
        assert another.post("/v1/policies/hosted:ping").status_code == 200
        fresh = open_stores(settings)
        version = fresh.catalog.policy("hosted").definition
        with pytest.raises(Exception, match="does not open"):
            build_client(version, ClientContext(settings.network, fresh.policy_keys.open)).ping()  # type: ignore[attr-defined]
        fresh.close()


def test_endpoint_no_longer_allowed_is_not_contacted(
    settings: Settings, serve: Callable[..., Api], stores: Stores
) -> None:
    with openai_endpoint() as endpoint:
        api = serve(settings)
        assert api.post("/v1/policies", {"definition": _definition(endpoint.url)}).status_code == 201
        asked = len(endpoint.headers)
        strict = serve(settings.model_copy(update={"allowed_networks": ()}))
        told = refused(strict.post("/v1/policies/hosted:ping"), 503, "policy-unavailable")["detail"]
        assert "SPECIATE_ALLOWED_NETWORKS" in told
        assert len(endpoint.headers) == asked


def test_api_key_is_write_only_in_the_document(api: Api) -> None:
    schema = api.get("/v1/openapi.json").json()["components"]["schemas"]["PolicySubmission"]
    assert schema["properties"]["api_key"]["writeOnly"] is True
    assert "password" in json.dumps(schema["properties"]["api_key"])
