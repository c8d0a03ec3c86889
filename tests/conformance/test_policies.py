"""Every kind of policy passes the suite; a new line in ``CLIENTS`` without a class here fails the last test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speciate.domain.policy import Policy
from speciate.policies import CLIENTS, build_client
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import PolicyClient
from speciate.testing.openai_endpoint import Endpoint, serve
from speciate.testing.policies import PolicyClientConformance


class TestProgramMutator(PolicyClientConformance):
    kind = "program_mutator"

    def make_client(self) -> PolicyClient:
        return build_client(Policy(slug="mutator", kind=self.kind, answers_per_rollout=2))


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


def test_every_kind_is_covered() -> None:
    covered = {TestProgramMutator.kind, TestScriptedTemplate.kind, TestOpenAICompatibleChat.kind}
    assert covered == set(CLIENTS)
