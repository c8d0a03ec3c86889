"""Invalid checkpoint folders are refused with the file and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from speciate.domain.errors import ConfigurationError
from speciate.inference.app import create_app
from speciate.inference.checkpoint import load_checkpoint
from tests.unit.inference.checkpoints import words, write


def _configured(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _weights(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return rewrite


def _replaced(name: str, content: bytes | Path) -> Callable[[Path], None]:
    """Return a change that replaces a file by other bytes, or by a link."""

    def replace(folder: Path) -> None:
        (folder / name).unlink()
        if isinstance(content, Path):
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_bytes(content)

    return replace


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda f: (f / "config.json").unlink(), "config.json cannot be read: No such file"),
    "an adapter": (lambda f: (f / "config.json").rename(f / "adapter_config.json"), "holds an adapter.*with vLLM"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "config.json is not a JSON object"),
    "architecture": (_configured(architectures=["GPT2LMHeadModel"]), r"GPT2LMHeadModel.*LlamaForCausalLM.*need vLLM"),
    "rope base": (_configured(rope_theta=float("nan")), "rope_theta"),
    "tiny rope base": (_configured(rope_theta=1e-300), "rope_theta"),
    "long rotations": (_configured(max_position_embeddings=1 << 20, head_dim=1024), "max_position_embeddings times"),
    "rope": (_configured(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "rope type is 'llama3'"),
    "new rope": (_configured(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), "rope type is 'yarn'"),
    "activation": (_configured(hidden_act="gelu"), "hidden_act is 'gelu'"),
    "bias": (_configured(attention_bias=True), "attention_bias is True"),
    "window": (_configured(use_sliding_window=True), "use_sliding_window is True"),
    "quantized": (_configured(quantization_config={"bits": 4}), "quantization_config"),
    "a text": (_configured(hidden_size="wide"), "config.json: hidden_size"),
    "heads": (_configured(num_key_value_heads=2), "num_key_value_heads is 2: expected a divisor"),
    "another shape": (
        _configured(intermediate_size=65),
        r"gate_proj.weight has the shape \(64, 48\).*different models",
    ),
    "end of text": (_configured(eos_token_id=50), "eos_token_id"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors cannot be read"),
    "cut off": (_cut, "model.safetensors is corrupt.*again"),
    "pickle": (_replaced("model.safetensors", b"\x80\x04cos\nsystem\n(S'id'\ntR."), "model.safetensors is corrupt"),
    "header of exabytes": (_replaced("model.safetensors", b"\xff" * 7 + b"\x7f{}"), "model.safetensors is corrupt"),
    "shape of exabytes": (
        _replaced(
            "model.safetensors",
            b"<\0\0\0\0\0\0\0" + b'{"a":{"dtype":"F32","shape":[9e9],"data_offsets":[0,9e9]}}'.ljust(60),
        ),
        "model.safetensors is corrupt",
    ),
    "deep JSON": (_replaced("config.json", b"[" * 100_000), "config.json is not JSON"),
    "long number": (_replaced("config.json", b'{"vocab_size": ' + b"9" * 5000 + b"}"), "config.json is not JSON"),
    "infinite base": (_configured(rope_theta=float("inf")), "rope_theta"),
    "lacking": (_weights(lambda w: w.pop("model.norm.weight")), "lacks model.norm.weight"),
    "surplus": (
        _weights(lambda w: w.update({"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)})),
        "holds model.layers.0.self_attn.q_norm.weight",
    ),
    "integers": (
        _weights(lambda w: w.update({"model.norm.weight": np.ones(48, np.int8)})),
        "model.norm.weight has the type I8",
    ),
    "NaN": (_weights(lambda w: w["lm_head.weight"].fill(np.nan)), "lm_head.weight holds NaN"),
    "overflow": (_weights(lambda w: w["lm_head.weight"].fill(3e38)), "computes NaN or infinity"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
    "odd tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is not a tokenizer"),
    "tokenizer of another": (
        lambda f: words(51).save(str(f / "tokenizer.json")),
        "token id 50, and the model's vocabulary has 50 tokens",
    ),
}


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("wrong", WRONG)
def test_refused(wrong: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "toy")
    change, message = WRONG[wrong]
    change(folder)
    with pytest.raises(ConfigurationError, match=message) as caught:
        create_app({"toy": folder})
    assert str(folder) in str(caught.value)
    assert caught.value.remedy


def test_generation_config_overrides_config(tmp_path: Path) -> None:
    folder = write(tmp_path / "toy")
    assert load_checkpoint(folder).eos_ids == (0,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    assert load_checkpoint(folder).eos_ids == (3, 4)
