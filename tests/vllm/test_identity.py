"""Policy client against vLLM: identity of the weights, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.bundled import checkpoints
from speciate.policies.manifest import weights_digest
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import PolicyClient, SampleRequest
from tests.support.openai_contract import ServedModel
from tests.support.policies import PolicyClientConformance
from tests.support.served_run import served_policy

REQUEST = SampleRequest(Prompt("", "S00 .01 G02 .12 E22 <b9> <one>"), PolicyRole.PROPOSE, 2, 1)


class TestServedByVllm(PolicyClientConformance):
    kind = "openai_compatible"

    @pytest.fixture(autouse=True)
    def _close(self, chatty: ServedModel) -> Iterator[None]:
        self.chatty = chatty
        with ExitStack() as self.clients:
            yield

    chatty: ServedModel
    clients: ExitStack

    def make_client(self) -> PolicyClient:
        policy = served_policy(self.chatty.url, self.chatty.name, prompt_format="chat", sampling={"max_tokens": 16})
        return self.clients.enter_context(OpenAICompatible(policy))


def _policy(plain: ServedModel, **changes: Any) -> Policy:
    return served_policy(plain.url, plain.name, sampling={"max_tokens": 12, "logprobs": True}, **changes)


def test_an_answer_has_tokens_latency_and_logprobs(plain: ServedModel) -> None:
    with OpenAICompatible(_policy(plain)) as client:
        (result,) = client.sample([REQUEST])
        (again,) = client.sample([REQUEST])
    assert result.prompt_tokens == len(plain.ids(REQUEST.prompt.text()))
    assert all(0 < each.tokens <= 12 for each in result.completions)
    assert all(each.mean_logprob is not None and each.mean_logprob < 0 for each in result.completions)
    assert 0 < result.latency_s < 60
    assert again.completions == result.completions


def test_changed_weights_are_detected_and_are_another_version(plain: ServedModel) -> None:
    with OpenAICompatible(_policy(plain)) as client:
        registered = client.identify()
    assert registered.checkpoint_digest == weights_digest(plain.folder)
    weights = plain.folder / "model.safetensors"
    try:
        weights.write_bytes((checkpoints()["maze-grpo"] / "model.safetensors").read_bytes())
        with OpenAICompatible(registered) as client, pytest.raises(PolicyUnavailableError) as caught:
            client.sample([REQUEST])
        assert str(weights_digest(plain.folder)) in str(caught.value)
        with OpenAICompatible(_policy(plain)) as client:
            assert client.identify().digest != registered.digest
    finally:
        weights.write_bytes((checkpoints()["maze-base"] / "model.safetensors").read_bytes())
    with OpenAICompatible(registered) as client:
        assert client.sample([REQUEST])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "other"}, "it serves maze-base, not 'other'"),
        ({"sampling": {"max_tokens": 256}}, "reads 256 tokens"),
        ({"checkpoint_digest": "ab" * 32}, "expected abab"),
    ],
)
def test_errors_are_reported_at_registration(plain: ServedModel, changes: dict[str, Any], says: str) -> None:
    policy = Policy.model_validate({**_policy(plain).model_dump(mode="json"), **changes})
    with OpenAICompatible(policy) as client, pytest.raises(PolicyUnavailableError) as caught:
        client.identify()
    assert says in str(caught.value)
    assert plain.url in str(caught.value)


def test_a_moved_folder_is_another_policy(plain: ServedModel, tmp_path: Path) -> None:
    with OpenAICompatible(_policy(plain)) as client:
        registered = client.identify()
    assert registered.served is not None
    moved = registered.model_copy(update={"served": registered.served.model_copy(update={"root": str(tmp_path)})})
    with OpenAICompatible(moved) as client, pytest.raises(PolicyUnavailableError, match=f"was {tmp_path}"):
        client.ping()
