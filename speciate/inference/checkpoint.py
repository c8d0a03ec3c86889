"""Load a Hugging Face folder, after checking everything; errors name the file and the remedy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError, deserialize

from speciate.domain.errors import ConfigurationError
from speciate.domain.validation import first_mistake

Array = npt.NDArray[np.float32]

ARCHITECTURES: Final = ("LlamaForCausalLM", "Qwen2ForCausalLM")
_MAX_BYTES: Final = 2 << 30
_MAX_ROTATIONS: Final = 1 << 27
EXPORT_AGAIN: Final = "Export or download the checkpoint again."
_REMEDY: Final = "Other architectures and options need vLLM."
_IMPLEMENTED: Final[dict[str, Any]] = {
    "rope type": "default",
    "partial_rotary_factor": 1.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "quantization_config": None,
}
"""Options of ``config.json`` with the only value that is implemented, which is also their default."""
_ALWAYS_READ: Final = frozenset({"rope type", "partial_rotary_factor", "hidden_act"})
_PLAIN: Final = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


class ModelConfig(BaseModel):
    """Shape of a model, as ``config.json`` gives it under Hugging Face's names."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    architectures: tuple[str, ...]
    vocab_size: int = Field(ge=2, le=1_000_000)
    hidden_size: int = Field(ge=2, le=16384)
    intermediate_size: int = Field(ge=1, le=65536)
    num_hidden_layers: int = Field(ge=1, le=200)
    num_attention_heads: int = Field(ge=1, le=256)
    num_key_value_heads: int = Field(ge=1, le=256)
    head_dim: int = Field(ge=2, le=1024, multiple_of=2)
    """d; D / H by default."""
    max_position_embeddings: int = Field(ge=2, le=1 << 20)
    rms_norm_eps: float = Field(default=1e-6, gt=0, lt=1)
    rope_theta: float = Field(default=10000.0, ge=1, le=1e12)
    tie_word_embeddings: bool = False
    eos_token_id: tuple[int, ...] = Field(default=(), validation_alias=AliasChoices("eos_token_id"))
    """Tokens that end a completion, unless ``generation_config.json`` names others."""

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, config: Any) -> Any:
        if not isinstance(config, dict):
            return config
        # Hugging Face omits values that follow from others, and transformers 5 renamed the rotary values.
        values = {key: value for key, value in config.items() if value is not None}
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
        if self.max_position_embeddings * self.head_dim > _MAX_ROTATIONS:
            raise ValueError(f"max_position_embeddings times head_dim is over {_MAX_ROTATIONS}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_key_value_heads}: expected a divisor of num_attention_heads"
                f" ({self.num_attention_heads})"
            )
        return self

    @property
    def qkv_bias(self) -> bool:
        return self.architectures[0] == "Qwen2ForCausalLM"


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    config: ModelConfig
    tensors: dict[str, Array]
    eos_ids: tuple[int, ...]


def read_config(folder: Path) -> ModelConfig:
    """Return the shape of a folder's model, without reading the weights."""
    path = folder / "config.json"
    if not path.exists() and path.with_name("adapter_config.json").exists():
        raise ConfigurationError(
            f"{folder} holds an adapter, and this server loads whole models.",
            remedy="Serve it with vLLM (docs/howto/serve-policies.md), or merge it into its base.",
        )
    values = read_json(path)
    _check_supported(path, values)
    try:
        return ModelConfig.model_validate(values)
    except ValidationError as error:
        place, message = first_mistake(error)
        raise ConfigurationError(
            f"{path}: {place} {message}.".replace(":  ", ": "),
            remedy="Export the checkpoint again with save_pretrained.",
        ) from None


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder; ``ConfigurationError`` if a file is missing or invalid, or the model is not implemented."""
    config = read_config(folder)
    tensors = _read_tensors(folder / "model.safetensors")
    _check_shapes(folder / "model.safetensors", tensors, config)
    return Checkpoint(folder, config, tensors, _eos_ids(folder, config))


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}.", remedy="Pass a folder that save_pretrained wrote."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON: {error}.", remedy=EXPORT_AGAIN) from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} is not a JSON object.", remedy=EXPORT_AGAIN)
    return value


def _check_supported(path: Path, config: dict[str, Any]) -> None:
    """Refuse every option that is not implemented and would change results."""
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise ConfigurationError(
            f"{path}: architectures is {named!r}: expected one of {', '.join(ARCHITECTURES)}.", remedy=_REMEDY
        )
    unsupported = {
        **_rotary_options(config),
        "hidden_act": config.get("hidden_act", "silu"),
        **{name: config.get(name) or _IMPLEMENTED[name] for name in _IMPLEMENTED.keys() - _ALWAYS_READ},
    }
    for name, expected in _IMPLEMENTED.items():
        if unsupported[name] != expected:
            raise ConfigurationError(
                f"{path}: {name} is {unsupported[name]!r}: this server implements {expected!r} only.", remedy=_REMEDY
            )


def _rotary_options(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        return {"rope type": rope, "partial_rotary_factor": config.get("partial_rotary_factor") or 1.0}
    partial = config.get("partial_rotary_factor", rope.get("partial_rotary_factor"))
    return {"rope type": rope.get("rope_type", rope.get("type", "default")), "partial_rotary_factor": partial or 1.0}


def _read_tensors(path: Path) -> dict[str, Array]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path} is over {_MAX_BYTES >> 30} GiB.", remedy="Models of this size need vLLM.")
        tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        return {name: _as_float32(path, name, tensor) for name, tensor in tensors}
    except OSError as error:
        sharded = path.with_name("model.safetensors.index.json").exists()
        remedy = "Merge the shards into one file, or use vLLM." if sharded else "Convert the weights to safetensors."
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.", remedy=remedy) from None
    except SafetensorError as error:
        raise ConfigurationError(f"{path} is corrupt: {error}.", remedy=EXPORT_AGAIN) from None
    except MemoryError:
        raise ConfigurationError(
            f"{path} does not fit into memory ({path.stat().st_size} bytes, and as many again as float32).",
            remedy="Serve fewer or smaller models.",
        ) from None


def _as_float32(path: Path, name: str, tensor: dict[str, Any]) -> Array:
    kind, shape, data = tensor["dtype"], tensor["shape"], tensor["data"]
    if kind == "BF16":
        # bfloat16 is the upper half of a float32.
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind not in _PLAIN:
        raise ConfigurationError(
            f"{path}: {name} has the type {kind}: expected F32, F16 or BF16.", remedy="Convert the checkpoint."
        )
    return np.frombuffer(data, _PLAIN[kind]).astype(np.float32).reshape(shape)


def expected_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
        "model.norm.weight": (c.hidden_size,),
    }
    if not c.tie_word_embeddings:
        shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
    width, inner = c.hidden_size, c.intermediate_size
    for layer in (f"model.layers.{i}" for i in range(c.num_hidden_layers)):
        for name, out in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (out, width)
            if c.qkv_bias:
                shapes[f"{layer}.self_attn.{name}_proj.bias"] = (out,)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (width, q)
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (width, inner)
        shapes |= {f"{layer}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
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
    others = tensors.keys() - shapes.keys() - ignored
    if surplus := sorted(name for name in others if not name.endswith("rotary_emb.inv_freq")):
        # Ignoring a weight would compute another model.
        raise ConfigurationError(f"{path} holds {surplus[0]}, which such a model does not have.", remedy=_REMEDY)


def _eos_ids(folder: Path, config: ModelConfig) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    named = read_json(path).get("eos_token_id") if path.exists() else None
    ids = (named,) if isinstance(named, int) else config.eos_token_id if named is None else named
    if not isinstance(ids, list | tuple) or not all(isinstance(i, int) and 0 <= i < config.vocab_size for i in ids):
        raise ConfigurationError(
            f"{path}: eos_token_id is {named!r}: expected ids below vocab_size ({config.vocab_size}).",
            remedy="Set it to the tokenizer's end-of-text token.",
        )
    return tuple(ids)
