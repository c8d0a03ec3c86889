"""vLLM writes rollouts in the trainer's process, with the weights of the last update."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from speciate.policies.bundled import checkpoints
from speciate.policies.manifest import read_manifest
from tests.vllm.servers import PYTHON_VARIABLE, SETTINGS

STEPS = 8
ROUNDING = 0.02  # nats per token; vLLM computes in bfloat16, which causes 0.005 here


def train(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ[PYTHON_VARIABLE], str(Path(__file__).parent / "train_on_cpu.py"), "train"]
    command += ["--task", "programs", "--method", "vpo", "--base", str(checkpoints()["programs-base"])]
    command += ["--out", str(out), "--set", "use_vllm=true", *options]
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    # In the trainer's process, where the trainer can reach vLLM's weights.
    settings = {**SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=kept | settings, cwd=out.parent, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.mark.parametrize("rank", [0, 8])
def test_vllm_writes_with_the_weights_of_the_last_update(rank: int, tmp_path: Path) -> None:
    """Stale weights would be detected: from step 2 on, policies differ by more than rounding."""
    options = ["--steps", str(STEPS), "--set", "prompts=16", "--set", "learning_rate=0.001"]
    ended = train(tmp_path / "policy", *options, "--set", f"lora_rank={rank}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    steps = read_manifest(tmp_path / "policy").metrics
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert all(step["sampling_gap"] < ROUNDING for step in steps), steps
    assert steps[-1]["kl"] > 10 * ROUNDING or rank, steps
    assert steps[-1]["kl"] > 0, steps
