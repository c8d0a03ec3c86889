"""Reference implementation of LLaMA, written for readability: no cache, no batches, no code of the tested engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Array = npt.NDArray[np.float64]


class ReferenceModel:
    """Log-probabilities of a checkpoint in float64.

    Args:
        folder: Checkpoint of a LLaMA without biases and scaled rotations.
    """

    def __init__(self, folder: Path) -> None:
        self._config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._weights = {name: w.astype(np.float64) for name, w in load_file(folder / "model.safetensors").items()}
        self.next_logprobs = lru_cache(maxsize=4096)(self._next_logprobs)

    def logprobs(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """Return the log-probability of every token of a completion."""
        table = self._logits((*prompt, *completion))[len(prompt) - 1 : -1]
        return [float(_log_softmax(row)[token]) for row, token in zip(table, completion, strict=True)]

    def _next_logprobs(self, tokens: tuple[int, ...]) -> Array:
        """Return the log-probabilities of the next token, (V,)."""
        return _log_softmax(self._logits(tokens)[-1])

    def _logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits (T, V) after each token."""
        w, c = self._weights, self._config
        x = w["model.embed_tokens.weight"][list(tokens)]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = x + self._attention(layer + "self_attn.", self._norm(layer + "input_layernorm", x))
            h = self._norm(layer + "post_attention_layernorm", x)
            gate, up = (h @ w[f"{layer}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{layer}mlp.down_proj.weight"].T
        out: Array = self._norm("model.norm", x) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
        return out

    def _norm(self, name: str, x: Array) -> Array:
        scale = np.sqrt((x**2).mean(-1, keepdims=True) + self._config["rms_norm_eps"])
        normed: Array = x / scale * self._weights[f"{name}.weight"]
        return normed

    def _attention(self, name: str, x: Array) -> Array:
        w, heads, groups = self._weights, self._config["num_attention_heads"], self._config["num_key_value_heads"]
        length = len(x)
        q, k, v = (x @ w[f"{name}{part}_proj.weight"].T for part in "qkv")
        q, k = (_rotated(part.reshape(length, -1, q.shape[1] // heads), self._theta()) for part in (q, k))
        k, v = (part.reshape(length, groups, -1).repeat(heads // groups, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2])
        scores[:, *np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(_log_softmax(scores))
        mixed: Array = np.einsum("hqk,khd->qhd", weights, v).reshape(length, -1) @ w[f"{name}o_proj.weight"].T
        return mixed

    def _theta(self) -> float:
        rope = self._config.get("rope_parameters") or self._config
        return float(rope.get("rope_theta", 10000.0))


def _rotated(x: Array, theta: float) -> Array:
    """Rotate the halves of (T, H, d) against each other by position."""
    half = x.shape[2] // 2
    angles = np.outer(np.arange(len(x)), theta ** -(np.arange(half) / half))[:, None, :]
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    turned: Array = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    return turned


def _log_softmax(x: Array) -> Array:
    shifted: Array = x - x.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted
