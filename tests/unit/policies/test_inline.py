"""Policies of models that were not registered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy, Price, Sampling
from speciate.policies import build_client
from speciate.policies.http_endpoint import HttpEndpoint
from speciate.policies.inline import _source, inline_policy, register
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.providers import PROVIDERS, environment_key
from speciate.schema.policies import PolicyVersion
from tests.support.openai_endpoint import Endpoint, serve

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in {each.key_variable for each in PROVIDERS.values()}:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@dataclass
class Registry:
    """A registry in memory that keeps versions by name, and the keys it was sent."""

    versions: dict[str, list[PolicyVersion]] = field(default_factory=dict)
    keys: dict[str, str | None] = field(default_factory=dict)

    def add(self, definition: Policy, *, api_key: str | None = None) -> PolicyVersion:
        self.keys[definition.slug] = api_key
        stored = definition if api_key is None else definition.model_copy(update={"api_key_id": str(uuid4())})
        versions = self.versions.setdefault(definition.slug, [])
        for version in versions:  # an equal one is the same version
            if version.definition.model_copy(update={"api_key_id": None}) == definition:
                return version
        number = len(versions) + 1
        versions.append(
            PolicyVersion(
                id=uuid4(), version=number, digest=stored.digest, created_at=datetime.now(UTC), definition=stored
            )
        )
        return versions[-1]

    def list(self, slug: str) -> list[PolicyVersion]:
        return self.versions.get(slug, [])[::-1]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_of_a_preset_has_its_defaults(provider: str) -> None:
    policy = inline_policy(f"{provider}/Maker/Model-1.5:free")
    preset = PROVIDERS[provider]
    assert (policy.slug, policy.model, policy.base_url) == (
        f"{provider}-maker-model-1-5-free",
        "Maker/Model-1.5:free",
        preset.base_url,
    )
    assert policy.options.get("concurrency") == preset.options.get("concurrency")
    assert policy.sampling.max_tokens == preset.max_tokens
    assert inline_policy(f"{provider}/m", max_tokens=300, temperature=0.5).sampling == Sampling(
        max_tokens=300, temperature=0.5
    )
    build_client(policy)  # its options are valid


def test_a_listed_price_is_taken() -> None:
    policy = inline_policy("openai/gpt-5.4")
    assert policy.options["fields"] == {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None}
    assert policy.price is not None


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-5", "provider is missing"),
        ("opanai/gpt-5", "Did you mean 'openai'"),
        ("", "provider is missing"),
        ("http://user:secret@127.0.0.1:8000/v1#m", "holds a password"),
        ("anthropic", "name of the model is missing"),
        ("openai", "OPENAI_API_KEY is not set"),
    ],
)
def test_a_text_of_another_form_names_the_form(model: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        inline_policy(model)
    assert says in f"{caught.value} {caught.value.remedy}"
    assert "secret" not in f"{caught.value} {caught.value.remedy}"


def test_the_only_model_of_a_server_needs_no_name(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.models, endpoint.key = ("qwen3:8b",), KEY
    monkeypatch.setenv("POLICY_KEY", KEY)
    policy = inline_policy(endpoint.url)
    assert (policy.model, policy.base_url, policy.options) == ("qwen3:8b", endpoint.url, {"fields": {"n": None}})
    endpoint.models = ({"id": "short", "max_model_len": 8192},)
    assert (policy.sampling.max_tokens, inline_policy(endpoint.url).sampling.max_tokens) == (16_384, 4096)
    assert inline_policy(endpoint.url, budget=20_000).sampling.max_tokens == 2500
    endpoint.models = ("qwen3:8b", "llama")
    with pytest.raises(InvalidInputError, match="expected the name of one of its models: qwen3:8b, llama"):
        inline_policy(endpoint.url.removesuffix("/v1"))
    assert inline_policy(f"{endpoint.url}#llama").model == "llama"


def test_an_unreachable_preset_names_the_command_that_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "ollama", replace(PROVIDERS["ollama"], base_url="http://127.0.0.1:9/v1"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    policy = inline_policy("ollama/m")
    with OpenAICompatible(policy) as client, pytest.raises(PolicyUnavailableError) as caught:
        client.ping()
    assert "`ollama serve` starts it" in str(caught.value.remedy)
    assert "do not use the proxies" in str(caught.value.remedy)


def test_an_unknown_model_lists_the_nearest_first(endpoint: Endpoint) -> None:
    endpoint.models = (*(f"other-{i}" for i in range(20)), "qwen3:8b")
    policy = inline_policy(f"{endpoint.url}#qwen3:80b")
    with OpenAICompatible(policy) as client, pytest.raises(PolicyUnavailableError, match="serves qwen3:8b, other-0"):
        client.ping()


def test_several_models_are_registered_with_their_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "key"))
    registry = Registry()
    weights = register(registry, ["openai/gpt-5.4=2", "ollama/qwen3:8b", "http://127.0.0.1:9/v1?v=3#m=0.5"])
    assert weights == {"openai-gpt-5-4@1": 2.0, "ollama-qwen3-8b@1": 1.0, "127-0-0-1-9-v1-v-3-m@1": 0.5}
    assert registry.keys == {"openai-gpt-5-4": KEY, "ollama-qwen3-8b": None, "127-0-0-1-9-v1-v-3-m": None}
    assert KEY not in json.dumps([each.definition.model_dump(mode="json") for (each,) in registry.versions.values()])
    for wrong in (["ollama/a", "ollama/a=2"], ["ollama/a=zero"], ["ollama/a=0"]):
        with pytest.raises(InvalidInputError, match="--model"):
            register(registry, wrong)


def test_a_key_that_was_stored_earlier_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    with pytest.raises(InvalidInputError, match="OPENAI_API_KEY is not set"):
        register(registry, ["openai/gpt-5.4"])
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        register(registry, ["openai/gpt-5.4"])
        register(registry, ["openai/gpt-5.4"], max_tokens=200)
    assert register(registry, ["openai/gpt-5.4"]) == {"openai-gpt-5-4@1": 1.0}
    with pytest.raises(InvalidInputError, match="OPENAI_API_KEY is not set"):
        register(registry, ["openai/gpt-5.4"], max_tokens=300)


def test_the_key_of_a_server_at_an_address_is_sent_whatever_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", KEY)
    source = _source("http://localhost:8080/v1#m")
    assert environment_key(source.preset, source.name) == KEY


def test_a_server_in_the_local_network_is_asked_for_its_only_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: HttpEndpoint, *_: object) -> bytes:
        assert self._context.network.addresses("192.168.1.5", 80, lambda *_: ["192.168.1.5"])
        return b'{"object": "list", "data": [{"id": "m"}]}'

    monkeypatch.setattr(HttpEndpoint, "check", check)
    assert inline_policy("http://192.168.1.5:8000/v1").model == "m"


def test_the_users_table_prices_a_model_at_an_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('"m" = { input = 1, output = 2 }\n')
    monkeypatch.setenv("SPECIATE_PRICES", str(tmp_path / "prices.toml"))
    assert inline_policy("http://127.0.0.1:9/v1#m").price == Price(input=1, output=2)
