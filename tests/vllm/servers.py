"""vLLM as a process: the CPU build in a separate virtual environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.openai_contract import ServedModel

PYTHON_VARIABLE = "SPECIATE_VLLM_PYTHON"
START_S = 600.0
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "auto",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def vllm(folder: Path, name: str, *flags: str, log: Path, **environment: str) -> Iterator[ServedModel]:
    """Serve a checkpoint with vLLM until the block ends."""
    port = _free_port()
    command = [os.environ[PYTHON_VARIABLE], "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(folder), "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    # On a CPU, a seeded request with chunked prefill crashes the engine of vLLM 0.32.
    command += ["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill", *flags]
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=kept | SETTINGS | environment,
            start_new_session=True,
        )
    try:
        _wait(process, port, log)
        yield ServedModel(f"http://127.0.0.1:{port}/v1", name, folder)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"vLLM ended:\n{log.read_text()[-3000:]}"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"vLLM is not ready after {START_S:.0f} s:\n{log.read_text()[-3000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
