"""Reads a Hugging Face folder: everything is checked before it is used, and an error names file and remedy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError, deserialize

from speciate.domain.errors import ConfigurationError
from speciate.domain.validation import validation_message

Array = npt.NDArray[np.float32]

ARCHITECTURES: Final = ("LlamaForCausalLM", "Qwen2ForCausalLM")
_MAX_BYTES: Final = 2 << 30
_REMEDY: Final = "Other architectures and options need vLLM."
_PLAIN: Final = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


class ModelConfig(BaseModel):
    """What ``config.json`` says of a model; the names are those of Hugging Face.

    Attributes:
        vocab_size: V.
        hidden_size: D.
        intermediate_size: F, the width of the feed-forward part.
        num_hidden_layers: L.
        num_attention_heads: H.
        num_key_value_heads: Hkv, a divisor of H.
        head_dim: d; by default D / H.
        max_position_embeddings: Longest sequence, prompt and completion together.
        rms_norm_eps: ε of the norm.
        rope_theta: Base of the rotary embedding.
        tie_word_embeddings: Whether the embedding is the output matrix, too.
        eos_token_id: Tokens that end a completion, unless ``generation_config.json`` names others.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    architectures: tuple[str, ...]
    vocab_size: int = Field(ge=2, le=1_000_000)
    hidden_size: int = Field(ge=2, le=16384)
    intermediate_size: int = Field(ge=1, le=65536)
    num_hidden_layers: int = Field(ge=1, le=200)
    num_attention_heads: int = Field(ge=1, le=256)
    num_key_value_heads: int = Field(ge=1, le=256)
    head_dim: int = Field(ge=2, le=1024, multiple_of=2)
    max_position_embeddings: int = Field(ge=2, le=1 << 20)
    rms_norm_eps: float = Field(default=1e-6, gt=0, lt=1)
    rope_theta: float = Field(default=10000.0, gt=0)
    tie_word_embeddings: bool = False
    eos_token_id: tuple[int, ...] = Field(default=(), validation_alias=AliasChoices("eos_token_id"))

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        # Hugging Face leaves out what follows from other values, and transformers 5 renamed the rotary values.
        values = {key: value for key, value in given.items() if value is not None}
        heads = values.get("num_attention_heads")
        values.setdefault("num_key_value_heads", heads)
        if isinstance(heads, int) and heads > 0 and isinstance(values.get("hidden_size"), int):
            values.setdefault("head_dim", values["hidden_size"] // heads)
        rope = values.get("rope_parameters")
        if isinstance(rope, dict) and "rope_theta" in rope:
            values["rope_theta"] = rope["rope_theta"]
        if isinstance(values.get("eos_token_id"), int):
            values["eos_token_id"] = (values["eos_token_id"],)
        return values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_key_value_heads}: expected a divisor of num_attention_heads"
                f" ({self.num_attention_heads})"
            )
        return self

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have biases."""
        return self.architectures[0] == "Qwen2ForCausalLM"


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds.

    Attributes:
        folder: Where it was read.
        config: Its shape.
        tensors: Weights by Hugging Face's names, float32.
        eos_ids: Tokens that end a completion.
        method: How the model was trained, as our own ``manifest.json`` says; None without one.
    """

    folder: Path
    config: ModelConfig
    tensors: dict[str, Array]
    eos_ids: tuple[int, ...]
    method: str | None


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder.

    Raises:
        ConfigurationError: A file is missing, broken, or of a model that this server does not implement.
    """
    config = _config(folder / "config.json", read_json(folder / "config.json"))
    tensors = _read_tensors(folder / "model.safetensors")
    _check_shapes(folder / "model.safetensors", tensors, config)
    return Checkpoint(folder, config, tensors, _eos_ids(folder, config), _method(folder))


def checkpoint_of(
    name: Path, config: dict[str, Any], tensors: dict[str, Array], eos_ids: tuple[int, ...]
) -> Checkpoint:
    """Return the checkpoint of a model in memory.

    Args:
        name: What messages call it.
        config: What its ``config.json`` would hold.
        tensors: Its weights, float32; they are not copied.
        eos_ids: Tokens that end a completion.

    Raises:
        ConfigurationError: It is of an architecture that this server does not implement.
    """
    read = _config(name, config)
    _check_shapes(name, tensors, read)
    return Checkpoint(name, read, tensors, eos_ids, None)


def _config(path: Path, given: dict[str, Any]) -> ModelConfig:
    _check_supported(path, given)
    try:
        return ModelConfig.model_validate(given)
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise ConfigurationError(
            f"{path}: {place} {validation_message(dict(detail))}.".replace(":  ", ": "),
            remedy="Export the checkpoint again with save_pretrained.",
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that a file of a checkpoint holds.

    Raises:
        ConfigurationError: The file cannot be read, or is no JSON object.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}.", remedy="A checkpoint is a folder that save_pretrained wrote."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} is not JSON: {error}.", remedy="Export or download the checkpoint again."
        ) from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} holds no JSON object.", remedy="Export or download the checkpoint again.")
    return value


def _check_supported(path: Path, given: dict[str, Any]) -> None:
    """Refuse by name whatever would change the numbers if it were ignored."""
    named = given.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise ConfigurationError(
            f"{path}: architectures is {named!r}: expected one of {', '.join(ARCHITECTURES)}.", remedy=_REMEDY
        )
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    partial = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
    found = {
        "rope type": (kind, "default"),
        "partial_rotary_factor": (given.get("partial_rotary_factor", partial) or 1.0, 1.0),
        "hidden_act": (given.get("hidden_act", "silu"), "silu"),
        "attention_bias": (given.get("attention_bias") or False, False),
        "mlp_bias": (given.get("mlp_bias") or False, False),
        "use_sliding_window": (given.get("use_sliding_window") or False, False),
        "quantization_config": (given.get("quantization_config"), None),
    }
    for name, (value, expected) in found.items():
        if value != expected:
            raise ConfigurationError(
                f"{path}: {name} is {value!r}: this server implements {expected!r} only.", remedy=_REMEDY
            )


def _read_tensors(path: Path) -> dict[str, Array]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path} is over {_MAX_BYTES >> 30} GiB.", remedy="Models of this size need vLLM.")
        found = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        return {name: _as_float32(path, name, tensor) for name, tensor in found}
    except OSError as error:
        sharded = path.with_name("model.safetensors.index.json").exists()
        remedy = "Merge its shards into one file, or use vLLM." if sharded else "Weights have to be in safetensors."
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.", remedy=remedy) from None
    except SafetensorError as error:
        raise ConfigurationError(
            f"{path} is corrupt: {error}.", remedy="Export or download the checkpoint again."
        ) from None
    except MemoryError:
        raise ConfigurationError(
            f"{path} does not fit into memory ({path.stat().st_size} bytes and as much again as float32).",
            remedy="Serve fewer or smaller models.",
        ) from None


def _as_float32(path: Path, name: str, tensor: dict[str, Any]) -> Array:
    kind, shape, data = tensor["dtype"], tensor["shape"], tensor["data"]
    if kind == "BF16":
        # The upper half of a float32.
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind not in _PLAIN:
        raise ConfigurationError(
            f"{path}: {name} has the type {kind}: expected F32, F16 or BF16.", remedy="Convert the checkpoint."
        )
    return np.frombuffer(data, _PLAIN[kind]).astype(np.float32).reshape(shape)


def expected_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every weight that a model of this configuration has."""
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
        "model.norm.weight": (c.hidden_size,),
    }
    if not c.tie_word_embeddings:
        shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}"
        for name, out in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (out, c.hidden_size)
            if c.qkv_bias:
                shapes[f"{layer}.self_attn.{name}_proj.bias"] = (out,)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (c.hidden_size, q)
        shapes[f"{layer}.mlp.gate_proj.weight"] = (c.intermediate_size, c.hidden_size)
        shapes[f"{layer}.mlp.up_proj.weight"] = (c.intermediate_size, c.hidden_size)
        shapes[f"{layer}.mlp.down_proj.weight"] = (c.hidden_size, c.intermediate_size)
        shapes[f"{layer}.input_layernorm.weight"] = (c.hidden_size,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (c.hidden_size,)
    return shapes


def _check_shapes(path: Path, tensors: dict[str, Array], config: ModelConfig) -> None:
    shapes = expected_shapes(config)
    remedy = "config.json and model.safetensors belong to different models: export the checkpoint again."
    for name, shape in shapes.items():
        if name not in tensors:
            raise ConfigurationError(f"{path} lacks {name}.", remedy=remedy)
        if tensors[name].shape != shape:
            raise ConfigurationError(
                f"{path}: {name} has the shape {tensors[name].shape}: config.json implies {shape}.", remedy=remedy
            )
        if not np.isfinite(tensors[name]).all():
            raise ConfigurationError(
                f"{path}: {name} holds NaN or infinity.", remedy="The training that wrote it has diverged."
            )
    ignored = {"lm_head.weight"} if config.tie_word_embeddings else set()
    surplus = [n for n in tensors if n not in shapes and n not in ignored and not n.endswith("rotary_emb.inv_freq")]
    if surplus:
        # A weight that is left out silently would make another model of it.
        raise ConfigurationError(f"{path} holds {surplus[0]}, which such a model has not.", remedy=_REMEDY)


def _eos_ids(folder: Path, config: ModelConfig) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    named = read_json(path).get("eos_token_id") if path.exists() else None
    ids = (named,) if isinstance(named, int) else config.eos_token_id if named is None else named
    if not isinstance(ids, list | tuple) or not all(isinstance(i, int) and 0 <= i < config.vocab_size for i in ids):
        raise ConfigurationError(
            f"{path}: eos_token_id is {named!r}: expected ids below vocab_size ({config.vocab_size}).",
            remedy="Correct it to the tokenizer's end-of-text token.",
        )
    return tuple(ids)


def _method(folder: Path) -> str | None:
    path = folder / "manifest.json"
    method = read_json(path).get("method") if path.exists() else None
    return method if isinstance(method, str) else None
