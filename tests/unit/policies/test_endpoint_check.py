"""Endpoint checks: identity of the weights, adapters, and mismatches with the registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest
from tests.support.openai_endpoint import Endpoint, serve

REQUEST = SampleRequest(Prompt("You improve.", "Improve x."), PolicyRole.PROPOSE, 2, 1)
Connect = Callable[..., OpenAICompatible]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def connect(endpoint: Endpoint) -> Iterator[Connect]:
    clients: list[OpenAICompatible] = []

    def make(policy: Policy | None = None, **changes: Any) -> OpenAICompatible:
        definition = {"slug": "served", "kind": "openai_compatible", "base_url": endpoint.url, "model": "m", **changes}
        given = Policy.model_validate(definition) if policy is None else policy
        clients.append(OpenAICompatible(given, sleep=lambda _: None))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def card(**more: Any) -> dict[str, Any]:
    return {"id": "m", "object": "model", "created": 1, "parent": None, **more}


def test_other_weights_behind_the_same_name_are_another_policy(
    endpoint: Endpoint, connect: Connect, folder: Path
) -> None:
    endpoint.models = (card(root=str(folder), max_model_len=4096),)
    first = connect().identify()
    assert first.checkpoint_digest is not None
    assert first.served is not None
    assert (first.served.root, first.served.digest_from) == (str(folder), "files")
    assert connect().identify() == first
    assert connect(first).ping().endswith(f"weights {first.checkpoint_digest[:12]}")
    (folder / "model.safetensors").write_bytes(b"others.")
    second = connect().identify()
    assert second.digest != first.digest
    for use in (OpenAICompatible.ping, lambda client: client.sample([REQUEST])):
        with pytest.raises(PolicyUnavailableError) as caught:
            use(connect(first))
        told = str(caught.value)
        assert second.checkpoint_digest is not None
        assert all(word in told for word in (first.checkpoint_digest, second.checkpoint_digest, str(folder)))
        assert "register the policy as a new version" in told


def test_a_digest_reported_by_the_endpoint_is_used(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.models = (card(metadata={"checkpoint_digest": "ab" * 32}),)
    assert connect().identify().checkpoint_digest == "ab" * 32
    with pytest.raises(PolicyUnavailableError, match=r"served with weights abab.* expected cd"):
        connect(checkpoint_digest="cd" * 32).identify()


def test_another_source_is_a_mismatch_and_another_creation_time_is_not(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.models = (card(root="lab/one", max_model_len=4096),)
    first = connect(checkpoint_digest="cd" * 32).identify()
    assert first.served is not None
    assert first.served.digest_from == "declared"
    endpoint.models = (card(root="lab/one", max_model_len=8192, created=2),)
    connect(first).sample([REQUEST])
    endpoint.models = (card(root="lab/two"),)
    with pytest.raises(PolicyUnavailableError, match="source of m was lab/one at registration and is lab/two now"):
        connect(first).sample([REQUEST])


def test_a_restart_with_other_weights_is_detected(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.models = (card(root="lab/one"),)
    client = connect(connect().identify())
    client.sample([REQUEST])

    def restarted(_: int) -> None:
        endpoint.models = (card(root="lab/two"),)

    def failing(number: int) -> tuple[int, dict[str, str], bytes]:
        endpoint.misbehave = restarted
        return 502, {}, b"bad gateway"

    endpoint.misbehave = failing
    with pytest.raises(PolicyUnavailableError, match="lab/two now"):
        client.sample([REQUEST])


def test_the_endpoint_is_checked_rarely(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.models = (card(root="lab/one"),)
    client = connect(connect().identify())
    before = len(endpoint.headers)
    for _ in range(5):
        client.sample([REQUEST])
    assert len(endpoint.headers) - before == 5 + 1
    client.revalidate()
    client.sample([REQUEST])
    assert len(endpoint.headers) - before == 6 + 2


@pytest.mark.parametrize(
    ("models", "changes", "says"),
    [
        (("a", "b"), {}, "it serves a, b, not 'm'"),
        ((), {}, "it serves no model, not 'm'"),
        ((card(max_model_len=512),), {"sampling": {"max_tokens": 512}}, "reads 512 tokens"),
        (("m",), {"options": {"base_model": "big"}}, "not the base model 'big'"),
        ((card(parent="big"), "small", "big"), {"options": {"base_model": "small"}}, "an adapter of big, not of small"),
        ((card(root="/x", parent="b"), "b"), {"options": {"adapter_path": "/y"}}, "loaded from /x, not from /y"),
        (("b",), {"options": {"adapter_path": "/y"}}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
    ],
)
def test_a_mismatch_names_what_the_endpoint_offers(
    endpoint: Endpoint, connect: Connect, models: Any, changes: dict[str, Any], says: str
) -> None:
    endpoint.models = models
    endpoint.misbehave = lambda _: None
    if "/y" in str(changes):
        endpoint.routes["load_lora_adapter"] = lambda _: (404, {}, b'{"detail":"Not Found"}')
    for use in (OpenAICompatible.identify, OpenAICompatible.ping):
        with pytest.raises(PolicyUnavailableError) as caught:
            use(connect(**changes))
        assert says in str(caught.value)
        assert endpoint.url in str(caught.value)


def test_an_unhealthy_endpoint_and_one_without_a_model_list(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.routes["/health"] = lambda _: (503, {}, b"")
    connect().identify()  # perhaps a proxy, whose route asks all of its models
    endpoint.models = (card(max_model_len=4096),)
    with pytest.raises(PolicyUnavailableError, match="GET /health answers 503"):
        connect().identify()
    endpoint.routes["/health"] = lambda _: (200, {}, b"")
    endpoint.routes["models"] = lambda _: (404, {}, b"")
    with pytest.raises(PolicyUnavailableError, match=r"lists no models.*the option check"):
        connect().identify()
    unchecked = connect(options={"check": False})
    assert unchecked.identify().served is None
    unchecked.revalidate()
    assert unchecked.sample([REQUEST])


class Adapters:
    """A server with two adapter slots."""

    def __init__(self, endpoint: Endpoint, *loaded: str) -> None:
        self.endpoint, self.calls = endpoint, []
        self.busy = ""
        endpoint.routes |= {"/load_lora_adapter": self.load, "/unload_lora_adapter": self.unload}
        self.list([(name, f"/{name}") for name in loaded])

    def list(self, loaded: list[tuple[str, str]]) -> None:
        self.loaded = loaded
        cards = [{"id": name, "root": path, "parent": "base"} for name, path in loaded]
        self.endpoint.models = ("base", *cards)
        info = 'vllm:lora_requests_info{max_lora="2",running_lora_adapters="%s",waiting_lora_adapters=""}'
        self.endpoint.metrics = (
            f"{info % 'x'} 5.0\n{info % self.busy} 9.0\n"
            f'vllm:num_requests_running{{engine="0"}} {float(bool(self.busy))}\n'
        )

    def load(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.calls.append(f"+{body['lora_name']}")
        self.list([*self.loaded, (body["lora_name"], body["lora_path"])])
        return 200, {}, b"Success"

    def unload(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.calls.append(f"-{body['lora_name']}")
        self.list([pair for pair in self.loaded if pair[0] != body["lora_name"]])
        return 200, {}, b"Success"


def adapter(name: str) -> dict[str, Any]:
    return {"model": name, "options": {"base_model": "base", "adapter_path": f"/{name}"}}


def test_a_missing_adapter_is_loaded_and_loaded_again_after_removal(endpoint: Endpoint, connect: Connect) -> None:
    server = Adapters(endpoint)
    client = connect(**adapter("own"))
    client.sample([REQUEST])
    client.sample([REQUEST])
    assert server.calls == ["+own"]
    server.list([])

    def missing(_: int) -> tuple[int, dict[str, str], bytes]:
        endpoint.misbehave = lambda _: None
        return 404, {}, b'{"error": {"message": "The model `own` does not exist."}}'

    endpoint.misbehave = missing
    client.sample([REQUEST])
    assert server.calls == ["+own", "+own"]


@pytest.mark.parametrize(
    ("busy", "loaded", "calls"),
    [
        ("", ("a-0123456789ab", "b-0123456789ab"), ["-a-0123456789ab", "+own"]),
        ("a-0123456789ab", ("a-0123456789ab", "b-0123456789ab"), ["-b-0123456789ab", "+own"]),
        ("a-0123456789ab,b-0123456789ab", ("a-0123456789ab", "b-0123456789ab"), ["+own"]),
        ("", ("by-hand", "b-0123456789ab"), ["-b-0123456789ab", "+own"]),
        ("", ("a-0123456789ab",), ["+own"]),
    ],
)
def test_only_our_idle_adapters_are_unloaded(
    endpoint: Endpoint, connect: Connect, busy: str, loaded: tuple[str, ...], calls: list[str]
) -> None:
    server = Adapters(endpoint, *loaded)
    server.busy = busy
    server.list(server.loaded)
    connect(**adapter("own")).ping()
    assert server.calls == calls
