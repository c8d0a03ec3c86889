"""Tiny checkpoints with random weights, written without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from speciate.inference.checkpoint import ModelConfig, expected_shapes

LLAMA, QWEN2 = "LlamaForCausalLM", "Qwen2ForCausalLM"
EOS = 0


def config_of(architecture: str = LLAMA, **changes: Any) -> dict[str, Any]:
    """The values of ``config.json``."""
    given = {
        "architectures": [architecture],
        "model_type": "llama" if architecture == LLAMA else "qwen2",
        "vocab_size": 50,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": EOS,
    }
    return given | changes


def write(folder: Path, architecture: str = LLAMA, *, dtype: str = "float32", seed: int = 0, **changes: Any) -> Path:
    """Write a checkpoint with a tokenizer of the words w1, w2, …"""
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(architecture, **changes)
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in expected_shapes(ModelConfig.model_validate(config)).items():
        # Large enough that attention and gates matter; a trained model has gains around 1.
        drawn = rng.normal(1.0 if "norm" in name else 0.0, 0.2, shape)
        weights[name] = drawn.astype(dtype)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    words(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    return folder


def words(count: int) -> Tokenizer:
    """A tokenizer of whole words, of which the first ends a text."""
    tokenizer = Tokenizer(models.WordLevel({"<eos>": EOS, **{f"w{i}": i for i in range(1, count)}}, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


CHAT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


def write_bytes(folder: Path, *, length: int = 16384, seed: int = 0, vocab_size: int = 257) -> Path:
    """Write a checkpoint with one token for each byte and a chat template; vLLM can serve it, too."""
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}
    write(folder, vocab_size=vocab_size, max_position_embeddings=length, seed=seed, **shape)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<eos>": EOS, **{letter: i for i, letter in enumerate(alphabet, start=1)}}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"clean_up_tokenization_spaces": False}))
    return folder
