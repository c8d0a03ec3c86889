"""Policies over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from speciate.settings import Settings
from tests.integration.service.conftest import Api, refused, scripted
from tests.support.openai_endpoint import serve as openai_endpoint

pytestmark = pytest.mark.servers

REFUSED = [
    ({"kind": "oracle"}, "Kinds: command, embedded, external, openai_compatible, polish, program_mutator, scripted"),
    ({"options": {"completions": ["x"], "order": "up"}}, "options.order"),
    ({"options": {}}, "template"),
    ({"kind": "openai_compatible", "options": {}}, "base_url"),
    ({"slug": "Not A Slug"}, "definition.slug: expected lower-case words joined by hyphens"),
    ({"base_url": "ftp://x"}, "http:// or https://"),
    ({"sampling": {"heat": 1}}, "expected temperature, top_p, max_tokens, logprobs"),
    ({"api_key": "secret"}, "api_key"),
    ({"sampling": {"temperature": -1}}, "sampling.temperature"),
]


def test_a_name_that_is_written_like_an_id_is_found(api: Api) -> None:
    for slug in (uuid4().hex, str(uuid4())):
        created = api.post("/v1/policies", {"definition": scripted(slug=slug).model_dump(mode="json")})
        assert created.status_code == 201
        for name in (slug, f"{slug}@1"):
            assert api.get(f"/v1/policies/{name}").json()["id"] == created.json()["id"]
    first = api.post("/v1/policies", {"definition": scripted(slug="a").model_dump(mode="json")}).json()
    for method in (None, "vpo"):  # two versions of a name that is another policy's id
        other = scripted(slug=first["id"], training_method=method).model_dump(mode="json")
        assert api.post("/v1/policies", {"definition": other}).status_code == 201
    assert api.get(f"/v1/policies/{first['id']}").json()["id"] == first["id"]
    assert api.get(f"/v1/policies/{first['id']}@2").json()["version"] == 2


def test_policy_registration_is_versioned(api: Api) -> None:
    first = api.post("/v1/policies", {"definition": scripted().model_dump(mode="json")})
    assert first.status_code == 201
    again = api.post("/v1/policies", {"definition": scripted().model_dump(mode="json")})
    assert (again.status_code, again.json()) == (200, first.json())
    second = api.post("/v1/policies", {"definition": scripted(training_method="vpo").model_dump(mode="json")})
    assert second.json()["version"] == 2
    assert api.get("/v1/policies/scripted").json() == second.json()
    assert api.get(first.headers["location"]).json() == api.get("/v1/policies/scripted@1").json() == first.json()
    assert [item["version"] for item in api.get("/v1/policies", params={"slug": "scripted"}).json()["items"]] == [2, 1]
    assert api.get("/v1/policies/scripted@1/versions").json() == api.get("/v1/policies").json()
    assert api.get("/v1/policies", params={"slug": "other"}).json()["items"] == []


def test_invalid_policy_options_are_rejected(api: Api) -> None:
    for changes, expected in REFUSED:
        answer = api.post("/v1/policies", {"definition": scripted().model_dump(mode="json") | changes})
        assert expected in str(refused(answer, 422, "invalid-input"))
        assert "secret" not in answer.text
        assert api.get("/v1/policies").json()["items"] == []


def test_ping_contacts_the_endpoint(api: Api) -> None:
    with openai_endpoint() as endpoint:
        definition = {"slug": "served", "kind": "openai_compatible", "base_url": endpoint.url, "model": "m"}
        options = {"max_retries": 0}
        api.post("/v1/policies", {"definition": definition | {"options": options}})
        answer = api.post("/v1/policies/served:ping")
        assert answer.status_code == 200, answer.text
        expected = {"policy": "served", "version": 1, "verdict": None}
        assert answer.json().items() >= expected.items()
        other = definition | {"model": "other", "options": options}
        assert "it serves m" in str(refused(api.post("/v1/policies", {"definition": other}), 503, "policy-unavailable"))
        api.post("/v1/policies", {"definition": other, "check": False})
        refused(api.post("/v1/policies/served:ping"), 503, "policy-unavailable")
    gone = refused(api.post("/v1/policies/served@1:ping"), 503, "policy-unavailable")
    assert endpoint.url in gone["detail"]


def test_every_project_has_the_mutator_and_external_under_one_name(api: Api) -> None:
    assert api.get("/v1/policies/mutator").json()["definition"]["kind"] == "program_mutator"
    for kind in ("program_mutator", "program-mutator"):
        assert "'mutator'" in str(refused(api.get(f"/v1/policies/{kind}"), 404, "not-found"))
    # Registering it by hand is the same version; an archived one is not added again.
    by_hand = api.post("/v1/policies", {"definition": {"slug": "mutator", "kind": "program_mutator"}})
    assert (by_hand.status_code, by_hand.json()["version"]) == (200, 1)
    api.post("/v1/policies/mutator:archive")
    assert api.get("/v1/policies/mutator").json()["archived_at"]

    api.post("/v1/projects", {"slug": "fresh"})
    listed = api.get("/v1/policies", headers={"Speciate-Project": "fresh"}).json()["items"]
    assert {policy["definition"]["slug"] for policy in listed} == {"external", "mutator"}


def test_unknown_policy_is_not_found(api: Api) -> None:
    refused(api.post("/v1/policies/nothing:ping"), 404, "not-found")
    refused(api.get("/v1/policies/nothing"), 404, "not-found")
    refused(api.get("/v1/policies/nothing/versions"), 404, "not-found")
    refused(api.get("/v1/policies", params={"slug": "\x00"}), 422, "invalid-input")


def test_names_and_versions_that_would_lead_elsewhere_are_refused(api: Api) -> None:
    answer = api.post("/v1/policies", {"definition": scripted().model_dump(mode="json") | {"slug": "new"}})
    assert "address of a form" in str(refused(answer, 422, "invalid-input"))
    api.post("/v1/policies", {"definition": scripted().model_dump(mode="json")})
    refused(api.get("/v1/policies/scripted@١"), 404, "not-found")  # an Arabic digit


def test_a_command_runs_only_if_the_operator_lists_it(settings: Settings, serve: Callable[..., Api]) -> None:
    definition = {"slug": "agent", "kind": "command", "options": {"command": "cat -u"}}
    closed = serve(settings)
    told = refused(closed.post("/v1/policies", {"definition": definition}), 403, "forbidden")
    assert "SPECIATE_AGENT_COMMANDS" in str(told)
    closed.post("/v1/policies", {"definition": definition, "check": False})
    refused(closed.post("/v1/policies/agent:ping"), 403, "forbidden")
    listed = serve(settings.model_copy(update={"agent_commands": ("claude -p", "cat -u")}))
    assert listed.post("/v1/policies", {"definition": definition}).status_code == 200
    assert "cat is on this machine" in listed.post("/v1/policies/agent:ping").text
