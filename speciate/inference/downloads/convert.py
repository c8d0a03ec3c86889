"""Convert a GGUF file of a Llama model to a Hugging Face folder, which every server and trainer here reads.

Quantized weights are expanded to float16, whose rounding is far below that of 4 bits.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from speciate.domain.errors import ConfigurationError

_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE: Final = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL: Final = 3
"""Type of tokens that are no text, such as ``<|im_end|>``."""


def convert(source: Path, folder: Path) -> None:
    """Write ``config.json``, ``model.safetensors``, tokenizer and chat template of a GGUF file into a folder."""
    try:
        gguf: Any = import_module("gguf")
    except ImportError:
        raise ConfigurationError(
            "converting a model needs the package gguf.", remedy="Install it: pip install 'speciate[models]'"
        ) from None
    reader = gguf.GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if (facts.get("general.architecture"), facts.get("tokenizer.ggml.pre")) != ("llama", "smollm"):
        raise ConfigurationError(
            f"{source} is a model of another kind: expected a Llama with SmolLM's tokenizer.",
            remedy="Serve it with llama.cpp, and register the server with --provider llamacpp.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, npt.NDArray[np.float16]] = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        name, values = _as_hugging_face(tensor.name, values, facts)
        weights[name] = values.astype(np.float16)
    # save_file raises an error of its own for a full disk, which is no OSError.
    (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
    (folder / "model.safetensors").chmod(0o644)  # another user may run the server
    _write_json(folder / "config.json", _config(facts, tied="lm_head.weight" not in weights))
    _write_json(folder / "generation_config.json", {"eos_token_id": facts["tokenizer.ggml.eos_token_id"]})
    _write_tokenizer(folder, facts)


def _as_hugging_face(
    name: str, values: npt.NDArray[np.float32], facts: Mapping[str, Any]
) -> tuple[str, npt.NDArray[np.float32]]:
    *place, part, kind = name.split(".")
    if not place:
        return f"{_WHOLE[part]}.{kind}", values
    if part in ("attn_q", "attn_k"):
        heads = facts["llama.attention.head_count" + ("" if part == "attn_q" else "_kv")]
        # llama.cpp interleaves the halves of a head that RoPE rotates; Hugging Face keeps them apart.
        values = values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
    return f"model.layers.{place[1]}.{_NAMES[part]}.{kind}", values


def _config(facts: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": round(float(facts["llama.attention.layer_norm_rms_epsilon"]), 12),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(facts["llama.rope.freq_base"])},
        "rope_theta": float(facts["llama.rope.freq_base"]),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def _write_tokenizer(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write SmolLM's tokenizer: GPT-2's byte-level BPE, with every digit a token."""
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, facts["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {
        f"{name}_token": tokens[facts[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": facts["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            **named,
        },
    )
    (folder / "chat_template.jinja").write_text(facts["tokenizer.chat_template"], "utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
