"""Compare the forward pass with transformers."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.generation import generate
from speciate.inference import Engine, model
from tests.unit.inference.checkpoints import LLAMA, QWEN2, write

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (LLAMA, {}),
    "llama-grouped-tied": (
        LLAMA,
        {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True},
    ),
    "llama-long-base": (LLAMA, {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "llama-half": (LLAMA, {"dtype": "float16"}),
    "qwen2": (QWEN2, {}),
    "qwen2-grouped-tied": (
        QWEN2,
        {"num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 64, "tie_word_embeddings": True},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_to_transformers(shape: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    architecture, changes = SHAPES[shape]
    folder = write(tmp_path / "m", architecture, eos_token_id=None, **changes)
    reference = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float32).eval()
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 50, length).tolist() for length in (1, 7, 16, 40, 40)]
    engine = Engine.load(folder)
    for prompt, completions in zip(prompts, generate(engine, prompts, n=2, max_tokens=60, top_p=0.9), strict=True):
        for completion in completions:
            with torch.no_grad():
                logits = reference(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
            wanted = logits.log_softmax(-1).numpy()
            chosen = wanted[np.arange(60), completion.token_ids]
            assert np.abs(chosen - completion.logprobs).max() <= 1e-4


def test_logits_equal_transformers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write(tmp_path / "m")
    reference = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = np.random.default_rng(2).integers(0, 50, (3, 21))
    logits, _ = Engine.load(folder)._model.prefill(prompts)
    with torch.no_grad():
        wanted = reference(torch.tensor(prompts)).logits[:, -1].numpy()
    assert np.abs(logits - wanted).max() <= 1e-4


def test_bfloat16_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    folder = write(tmp_path / "m")
    load_file = pytest.importorskip("safetensors.torch").load_file
    rounded = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(rounded, folder / "model.safetensors")
    tensors = Engine.load(folder).checkpoint.tensors
    assert all(np.array_equal(tensors[name], tensor.float().numpy()) for name, tensor in rounded.items())
    assert rounded["model.norm.weight"].dtype is torch.bfloat16


def test_a_long_prompt_takes_no_quadratic_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Engine.load(write(tmp_path / "m", max_position_embeddings=4096))._model
    prompts = np.random.default_rng(2).integers(0, 50, (1, 3000))
    tracemalloc.start()
    (logits,), cache = loaded.prefill(prompts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20, "three heads of 3000 x 3000 numbers would be 100 MiB"
    monkeypatch.setattr(model, "_QUERIES", 4096)
    (wanted,), whole = loaded.prefill(prompts)
    assert np.abs(logits - wanted).max() <= 1e-4
    assert np.abs(cache - whole).max() <= 1e-4
