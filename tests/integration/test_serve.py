"""``speciate serve`` as a process, with requests of the policy client."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from speciate.cli.serve import serve_command
from speciate.domain.policy import Policy, PolicyRole, PromptFormat, Sampling
from speciate.domain.rollout import Prompt
from speciate.local_ports import find_free_port
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest
from tests.unit.inference.checkpoints import write

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from speciate.cli import main; main()", "serve"]


def _start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPECIATE_")}
    env = kept | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=env)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"at (http://\S+/v1) ", line):
            return found[1]
    raise AssertionError(f"it ended with {process.wait()}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write(tmp_path_factory.mktemp("served") / "toy")
    with _start(f"vpo={folder}", str(folder), "--port", "0") as process:
        try:
            yield _address(process)
        finally:
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "Stopping …\n")


def _policy(base_url: str, **sampling: object) -> Policy:
    given = {"max_tokens": 40, "top_p": 0.95, "logprobs": True, **sampling}
    return Policy(
        slug="tiny",
        kind="openai_compatible",
        base_url=base_url,
        model="vpo",
        prompt_format=PromptFormat.COMPLETION,
        sampling=Sampling.model_validate(given),
    )


def test_our_client_gets_an_answer(served: str) -> None:
    request = SampleRequest(Prompt(system="", user="w1 w2 w3"), PolicyRole.PROPOSE, n=30, seed=11)
    with OpenAICompatible(_policy(served)) as client:
        assert "serves vpo" in client.ping()
        (result,) = client.sample([request])
        (again,) = client.sample([request])
    assert len(result.completions) == 30
    assert result.prompt_tokens == 3
    words = sum(len(each.text.split()) + (each.finish_reason == "stop") for each in result.completions)
    assert sum(each.tokens for each in result.completions) == words
    assert all(each.mean_logprob is not None and each.mean_logprob < 0 for each in result.completions)
    assert [each.text for each in again.completions] == [each.text for each in result.completions]


def test_an_answer_does_not_depend_on_other_clients(served: str) -> None:
    def ask(seed: int) -> list[str]:
        body = {"model": "toy", "prompt": f"w{seed % 9 + 1} w2", "n": 5, "seed": seed, "max_tokens": 60}
        answer = httpx.post(f"{served}/completions", json=body, timeout=60, trust_env=False, verify=False)
        return [choice["text"] for choice in answer.raise_for_status().json()["choices"]]

    alone = ask(3)
    with ThreadPoolExecutor(31) as pool:
        amid = list(pool.map(ask, range(31)))
    assert amid[3] == alone
    assert amid == [ask(seed) for seed in range(31)]


@pytest.mark.parametrize(
    ("arguments", "environment", "words", "code"),
    [
        (["{folder}", "--host", "0.0.0.0"], {}, "SPECIATE_SERVE_TOKEN", 8),
        (["{folder}"], {"SPECIATE_SERVE_TOKEN": " "}, "SPECIATE_SERVE_TOKEN is empty", 8),
        (["{folder}", "toy={folder}"], {}, "is empty or repeated", 4),
        (["/nowhere"], {}, "/nowhere/config.json cannot be read", 8),
    ],
)
def test_invalid_checkpoints_are_refused(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], words: str, code: int
) -> None:
    folder = write(tmp_path / "toy")
    process = _start(*(each.format(folder=folder) for each in arguments), "--port", "0", **environment)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told.splitlines()[-1].startswith("error: ")
    assert words in told
    assert "Traceback" not in told


def test_a_taken_port(served: str, tmp_path: Path) -> None:
    port = served.rpartition(":")[2].removesuffix("/v1")
    process = _start(str(write(tmp_path / "toy")), "--port", port)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 6
    assert f"cannot listen on 127.0.0.1:{port}" in told


def test_requests_wait_for_the_checkpoints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that a restarted service resumes asks its policy while the server still reads."""
    port = find_free_port()

    def read(*_: object, **__: object) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            raise InterruptedError

    monkeypatch.setattr("speciate.inference.app.create_app", read)
    with pytest.raises(InterruptedError):
        serve_command([str(tmp_path)], port=port)


def test_connections_of_128_clients_outlive_their_idle_time(served: str) -> None:
    place = urlsplit(served)
    clients = [http.client.HTTPConnection(place.hostname or "", place.port, timeout=60) for _ in range(128)]

    def ask(connection: http.client.HTTPConnection) -> int:
        body = json.dumps({"model": "toy", "prompt": "w1", "max_tokens": 4})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            answer.read()
            return answer.status

    try:
        with ThreadPoolExecutor(128) as pool:
            assert set(pool.map(ask, clients)) == {200}
            time.sleep(5.5)  # clients and proxies keep a connection for 5 s and more, and then use it
            # An answer on the same socket: with ``auto_open`` off, a connection that the server closed is an error.
            for connection in clients:
                connection.auto_open = 0
            assert set(pool.map(ask, clients)) == {200}
    finally:
        for connection in clients:
            connection.close()
