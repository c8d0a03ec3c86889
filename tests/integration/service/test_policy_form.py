"""The form that registers a policy follows the rules of the REST API."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from speciate.domain.access import Scope
from speciate.policies.providers import PROVIDERS
from speciate.settings import Settings
from speciate.storage.stores import Stores
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID
from tests.integration.service.conftest import Api, scripted
from tests.support.openai_endpoint import serve as openai_endpoint

pytestmark = pytest.mark.servers

KEY = "sk-first-0123456789abcdef"
WRONG = "sk-wrong-fedcba9876543210"
FORM = {"slug": "hosted", "kind": "openai_compatible", "model": "m", "check": "on", "options.check": "on"}
OPTION = {"options.max_retries": "0"}


def _send(api: Api, path: str, form: dict[str, str] | None = None, token: str | None = None) -> httpx.Response:
    headers = {"Origin": str(api.http.base_url).rstrip("/"), "Accept": "text/html"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    # An empty form has a body, too: the label that says what it is.
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    return api.http.post(path, data=form or {}, headers=headers)


def test_policy_form_checks_before_registering(api: Api) -> None:
    with openai_endpoint() as endpoint:
        endpoint.key = KEY
        form = FORM | OPTION | {"base_url": endpoint.url, "api_key": KEY}
        tried = _send(api, "/policies/test", form)
        assert (tried.status_code, "The policy answers." in tried.text) == (200, True)
        assert f'value="{endpoint.url}"' in tried.text
        wrong = _send(api, "/policies/test", form | {"api_key": WRONG})
        assert (wrong.status_code, "The policy endpoint cannot be used." in wrong.text) == (422, True)
        assert f'value="{endpoint.url}"' in wrong.text
        assert api.get("/v1/policies").json()["items"] == []

        made = _send(api, "/policies", form)
        assert (made.status_code, made.headers["location"]) == (303, "/policies/hosted@1")
        stored = api.get("/v1/policies/hosted").json()
        assert stored["definition"]["options"] == {"max_retries": 0}
        # Over REST the same is the same version.
        definition = {**FORM, "base_url": endpoint.url, "options": {"max_retries": 0}}
        del definition["check"], definition["options.check"]
        again = api.post("/v1/policies", {"definition": definition, "api_key": KEY})
        assert (again.status_code, again.json()) == (200, stored)
        assert stored["definition"]["price"] is None
        priced = _send(api, "/policies", form | {"price.input": "0.15", "price.output": "0.6"})
        assert priced.headers["location"] == "/policies/hosted@2"
        assert api.get("/v1/policies/hosted@2").json()["definition"]["price"] == {"input": 0.15, "output": 0.6}
        asked = _send(api, "/policies/hosted@1")
        assert "The policy answers." in asked.text
    gone = _send(api, "/policies/hosted")
    assert (gone.status_code, "The policy endpoint cannot be used." in gone.text) == (200, True)
    assert _send(api, "/policies/nothing").status_code == 404
    for page in (tried, wrong, asked, gone, api.get("/policies/hosted")):
        assert KEY not in page.text
        assert WRONG not in page.text


def test_invalid_policy_form_shows_the_reason(api: Api) -> None:
    answer = _send(api, "/policies", FORM | {"slug": "No Slug", "base_url": "http://169.254.169.254/v1"})
    assert answer.status_code == 422
    assert 'id="wrong-slug"' in answer.text
    assert 'value="No Slug"' in answer.text
    refused = _send(api, "/policies/test", FORM | {"base_url": "http://169.254.169.254/v1"})
    assert 'id="wrong-base_url"' in refused.text
    assert "link-local" in refused.text
    assert api.get("/v1/policies").json()["items"] == []
    unchecked = FORM | {"base_url": "http://127.0.0.1:1/v1", "check": ""}
    assert _send(api, "/policies", unchecked).status_code == 303


def test_cross_site_form_is_rejected(api: Api) -> None:
    version = api.post("/v1/policies", {"definition": scripted().model_dump(mode="json")}).json()["version"]
    for path in ("/policies", "/policies/new", f"/policies/scripted@{version}"):
        for headers in ({}, {"Origin": "https://evil.example"}):
            assert api.http.post(path, data=FORM, headers=headers).status_code == 403
    assert len(api.get("/v1/policies").json()["items"]) == 1


def test_policy_form_respects_scopes_and_variables(
    settings: Settings, serve: Callable[..., Api], stores: Stores
) -> None:
    api = serve(settings.model_copy(update={"token": SecretStr("0perat0r")}))
    tokens = {
        scope: stores.tokens.create(DEFAULT_PROJECT_ID, scope.value, scope, created_by="test").token for scope in Scope
    }
    form = FORM | {"base_url": "http://127.0.0.1:1/v1", "check": "", "api_key_env": "POLICY_KEY_X"}
    for path in ("/policies", "/policies/test"):
        assert _send(api, path, form, tokens[Scope.READ]).status_code == 403
        told = _send(api, path, form, tokens[Scope.ADMIN])
        assert (told.status_code, "Only the operator token may send it" in told.text) == (422, True)
    shown = {
        token: "api_key_env" in api.get("/policies/new", headers={"Authorization": f"Bearer {token}"}).text
        for token in ("0perat0r", *tokens.values())
    }
    assert shown == {"0perat0r": True} | dict.fromkeys(tokens.values(), False)
    assert stores.catalog.policies().items == ()
    assert _send(api, "/policies", form, "0perat0r").status_code == 303
    own = FORM | {"base_url": "http://127.0.0.1:1/v1", "check": ""}
    assert _send(api, "/policies", own, tokens[Scope.SUBMIT]).status_code == 303


def test_presets_of_providers_fill_the_form_in(api: Api) -> None:
    empty = api.get("/policies/new").text
    for name, provider in PROVIDERS.items():
        assert f'href="/policies/new?provider={name}"' in empty
        filled = api.get(f"/policies/new?provider={name}&slug=mine").text
        assert f'value="{provider.base_url}"' in filled
        assert 'value="mine"' in filled
    options = html.unescape(api.get("/policies/new?provider=anthropic").text)
    assert re.search(r'name="options.fields"[^>]*>\s*{"n": null, "seed": null', options)
    assert "Address and options are filled in" not in api.get("/policies/new?provider=nothing").text


def test_a_preset_is_registered_as_shown(api: Api) -> None:
    page = api.get("/policies/new?provider=openai").text
    fields = html.unescape(re.search(r'name="options.fields"[^>]*>\n?([^<]*)<', page).group(1))  # type: ignore[union-attr]
    form = FORM | {"base_url": "https://api.openai.com/v1", "options.fields": fields.strip(), "check": ""}
    assert _send(api, "/policies", form).status_code == 303
    stored = api.get("/v1/policies/hosted").json()["definition"]["options"]
    assert stored == {"fields": {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None}}
