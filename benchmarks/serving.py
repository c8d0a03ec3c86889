"""Tokens per CPU-second of the inference server: the engine alone, and through HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.figures import Figure, record
from benchmarks.parts import median, processor_seconds, show
from speciate.settings import Settings
from tests.unit.inference.checkpoints import write

ROOT = Path(__file__).parents[1]
BATCHES = (1, 32, 128)
PROMPT_TOKENS, NEW_TOKENS = 40, 80
REPEATS = 5
SHAPES = {
    "bundled, 0.4 M": {
        "vocab_size": 256,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    },
    "1.9 M": {
        "vocab_size": 512,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
    },
}
# BLAS reads this when numpy is loaded, so that the engine is measured in a process of its own, as the server is.
ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def run(_: Settings) -> None:
    """Measure and print the table."""
    rows = []
    with TemporaryDirectory(prefix="speciate-bench-") as home:
        for name, shape in SHAPES.items():
            # Without an end of text every completion has all its tokens.
            folder = write(Path(home) / name.partition(",")[0], eos_token_id=None, **shape)
            engine = _engine(folder)
            rows += [(name, "engine", *engine), (name, "HTTP", *_http(folder))]
    bundled = rows[1][2 + BATCHES.index(32)]
    record("serving: batch of 32 over HTTP", Figure(bundled, "tokens/s", 10_000, lower=False))
    show(
        f"Inference server: tokens per CPU-second, {PROMPT_TOKENS} tokens read and {NEW_TOKENS} drawn for each"
        f" completion, top-p 0.95, one thread, median of {REPEATS}",
        ["", "", *(f"batch {batch}" for batch in BATCHES)],
        rows,
        "Only drawn tokens count, time to read prompts does, too. HTTP: one request a completion, the server's CPU"
        " time. Target: 10,000 at batch 32 for the bundled size.",
    )


def _engine(folder: Path) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.serving", str(folder)]
    printed = subprocess.run(command, env=ONE_THREAD, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [float(figure) for figure in printed.split()]


def _in_this_process(folder: Path) -> None:
    from experiments.generation import generate
    from speciate.inference import Engine

    engine = Engine.load(folder)
    for batch in BATCHES:
        prompts = [[1 + (i + j) % 50 for j in range(PROMPT_TOKENS)] for i in range(batch)]
        figures = []
        for _ in range(REPEATS + 1):
            begun = time.process_time()
            generate(engine, prompts, max_tokens=NEW_TOKENS, top_p=0.95)
            figures.append(batch * NEW_TOKENS / (time.process_time() - begun))
        sys.stdout.write(f"{median(figures[1:])}\n")


def _http(folder: Path) -> Iterator[float]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with _serving(folder) as (process, url), httpx.Client(limits=limits, trust_env=False, timeout=120) as client:
        for batch in BATCHES:
            figures = []
            for repeat in range(REPEATS + 1):
                bodies = [
                    {
                        "model": "m",
                        "prompt": " ".join(f"w{1 + (i + j) % 50}" for j in range(PROMPT_TOKENS)),
                        "max_tokens": NEW_TOKENS,
                        "top_p": 0.95,
                        "seed": repeat * 1000 + i,
                    }
                    for i in range(batch)
                ]
                before = processor_seconds([process.pid])
                with ThreadPoolExecutor(batch) as pool:
                    answers = list(pool.map(lambda body: client.post(f"{url}/completions", json=body), bodies))
                seconds = processor_seconds([process.pid]) - before
                drawn = sum(answer.raise_for_status().json()["usage"]["completion_tokens"] for answer in answers)
                # The kernel counts processor time in hundredths of a second.
                figures.append(drawn / max(seconds, 0.01))
            yield median(figures[1:])


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", "from speciate.cli import main; main()", "serve", f"m={folder}", "--port", "0"]
    with subprocess.Popen(command, env=ONE_THREAD, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline().partition(" at ")[2].split()[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    _in_this_process(Path(sys.argv[1]))
