"""The inference server passes the OpenAI contract; ``make test-vllm`` tests vLLM with the same suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speciate.inference.app import create_app
from speciate.policies.bundled import checkpoints
from tests.support.http_server import serve_app
from tests.support.openai_contract import OpenAIContract, ServedModel
from tests.unit.inference.checkpoints import write_bytes


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServedModel]]:
    folders = {
        "maze-base": checkpoints()["maze-base"],
        "bytes": write_bytes(tmp_path_factory.mktemp("served") / "bytes"),
    }
    with serve_app(create_app(folders)) as url:
        yield {name: ServedModel(f"{url}/v1", name, folder) for name, folder in folders.items()}


class TestEmbeddedServer(OpenAIContract):
    @pytest.fixture
    def plain(self, models: dict[str, ServedModel]) -> ServedModel:
        return models["maze-base"]

    @pytest.fixture
    def chatty(self, models: dict[str, ServedModel]) -> ServedModel:
        return models["bytes"]
