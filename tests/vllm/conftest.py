"""Two vLLM servers for ``make test-vllm``; without vLLM nothing in this folder is collected."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from speciate.inference.app import create_app
from speciate.policies.bundled import checkpoints
from tests.support.http_server import serve_app
from tests.support.openai_contract import ServedModel
from tests.unit.inference.checkpoints import write_bytes
from tests.vllm.servers import PYTHON_VARIABLE, vllm

collect_ignore_glob = [] if PYTHON_VARIABLE in os.environ else ["test_*.py"]

SLOTS = 2
SEQUENCES = 16


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("checkpoints")
    plain = shutil.copytree(checkpoints()["maze-base"], base / "maze-base")
    return {"maze-base": plain, "bytes": write_bytes(base / "bytes")}


@pytest.fixture(scope="session")
def plain(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The base of mazes with room for two adapters that are loaded at run time."""
    flags = ["--max-model-len", "256", "--max-num-seqs", str(SEQUENCES), "--enable-lora"]
    flags += ["--max-loras", str(SLOTS), "--max-lora-rank", "8"]
    log = tmp_path_factory.mktemp("vllm") / "plain.log"
    with vllm(folders["maze-base"], "maze-base", *flags, log=log, VLLM_ALLOW_RUNTIME_LORA_UPDATING="True") as served:
        yield served


@pytest.fixture(scope="session")
def chatty(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """A model of bytes with a chat template, without adapters."""
    log = tmp_path_factory.mktemp("vllm") / "chatty.log"
    flags = ["--max-model-len", "16384", "--max-num-seqs", "32", "--max-num-batched-tokens", "16384"]
    with vllm(folders["bytes"], "bytes", *flags, log=log) as served:
        yield served


@pytest.fixture(scope="session")
def embedded(folders: dict[str, Path]) -> Iterator[dict[str, ServedModel]]:
    """The same checkpoints behind the bundled inference server."""
    with serve_app(create_app(folders)) as url:
        yield {name: ServedModel(f"{url}/v1", name, folder) for name, folder in folders.items()}
