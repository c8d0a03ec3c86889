"""Every policy kind passes the suite; a line in ``KINDS`` without a class here fails the last test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from speciate.domain.policy import EXTERNAL, Policy
from speciate.inference.app import create_app
from speciate.policies import KINDS, build_client
from speciate.policies.embedded import ADDRESS_VARIABLE, InferenceServerPolicy
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import PolicyClient
from tests.support.http_server import serve_app
from tests.support.openai_endpoint import Endpoint, serve
from tests.support.policies import PolicyClientConformance
from tests.unit.inference.checkpoints import write as write_checkpoint


class TestProgramMutator(PolicyClientConformance):
    kind = "program_mutator"

    def make_client(self) -> PolicyClient:
        return build_client(Policy(slug="mutator", kind=self.kind, answers_per_rollout=2))


class TestPolisher(PolicyClientConformance):
    kind = "polish"

    def make_client(self) -> PolicyClient:
        return build_client(Policy(slug="polish", kind=self.kind, answers_per_rollout=2))


class TestScriptedCompletions(PolicyClientConformance):
    kind = "scripted"

    def make_client(self) -> PolicyClient:
        options = {"completions": ["a", "b", "c"], "tokens_per_completion": 3, "prompt_tokens": 5}
        return build_client(Policy.model_validate({"slug": "script", "kind": self.kind, "options": options}))


class TestScriptedTemplate(PolicyClientConformance):
    kind = "scripted"

    def make_client(self) -> PolicyClient:
        options = {"template": "x = {number}"}
        return build_client(Policy.model_validate({"slug": "script", "kind": self.kind, "options": options}))


class TestCommand(PolicyClientConformance):
    kind = "command"

    def make_client(self) -> PolicyClient:
        return build_client(Policy(slug="echo", kind=self.kind, options={"command": "cat"}))


class _OpenAICompatible(PolicyClientConformance):
    kind = "openai_compatible"
    prompt_format = "chat"

    @pytest.fixture(autouse=True)
    def _serve(self) -> Iterator[None]:
        self.clients: list[OpenAICompatible] = []
        with serve() as self.endpoint:
            yield
            for client in self.clients:
                client.close()

    endpoint: Endpoint

    def make_client(self) -> PolicyClient:
        definition = {"base_url": self.endpoint.url, "model": "m", "prompt_format": self.prompt_format}
        client = OpenAICompatible(Policy.model_validate({"slug": "served", "kind": self.kind, **definition}))
        self.clients.append(client)
        return client


class TestOpenAICompatibleChat(_OpenAICompatible):
    pass


class TestOpenAICompatibleCompletion(_OpenAICompatible):
    prompt_format = "completion"


@pytest.fixture(scope="module")
def _beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = write_checkpoint(tmp_path_factory.mktemp("served") / "toy", max_position_embeddings=512)
    with serve_app(create_app({"toy": folder})) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv(ADDRESS_VARIABLE, f"{url}/v1")
        yield


@pytest.mark.usefixtures("_beside")
class TestEmbedded(PolicyClientConformance):
    kind = "embedded"

    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        with ExitStack() as self.clients:
            yield

    clients: ExitStack

    def make_client(self) -> PolicyClient:
        definition = {"model": "toy", "prompt_format": "completion", "sampling": {"max_tokens": 16}}
        policy = Policy.model_validate({"slug": "tiny", "kind": self.kind, **definition})
        return self.clients.enter_context(InferenceServerPolicy(policy))


def test_every_kind_is_covered() -> None:
    suites = (
        TestProgramMutator,
        TestPolisher,
        TestScriptedTemplate,
        TestCommand,
        TestOpenAICompatibleChat,
        TestEmbedded,
    )
    covered = {suite.kind for suite in suites} | {EXTERNAL}  # never asked
    assert covered == set(KINDS)
