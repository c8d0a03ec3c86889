"""Decoder of LLaMA and Qwen2 (arXiv:2302.13971, 2407.10671) with a key-value cache, float32, in numpy.

Letters of shapes: R rows (sequences), T positions, D width, H heads, K key-value heads with G = H / K queries each, d
width of a head, F width of the feed-forward part, V vocabulary, L layers.

Work that does not depend on the token is done once, at loading, and changes results by rounding only:

- the gain of a norm and the 1/√d of attention are multiplied into the matrices that follow;
- q, k and v are one matrix;
- the two halves of a head that RoPE (arXiv:2104.09864) rotates are interleaved, so that it is a complex product.

A row's result depends on the other rows of its batch by rounding only. Rows, positions and columns are padded to
``TILE``, since BLAS rounds differently at the edge of a matrix. With one BLAS thread and OpenBLAS's kernels for AVX-512
results then are equal to the last bit. Its kernels for AVX2 (Haswell, Zen) round a row by its place in the matrix, so
there log-probabilities differ by about 1e-7 between batches.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from speciate.inference.checkpoint import Array, Checkpoint, ModelConfig

Ints = npt.NDArray[np.intp]

TILE: Final = 16
"""Rows, positions and columns are padded to multiples of this; no known AVX-512 kernel has longer blocks of rows."""


LEAST_POSITIONS: Final = 4 * TILE
"""Least number of positions to sum over; shorter sums are rounded differently."""


_QUERIES: Final = 16 * TILE
"""Positions of a prompt that attend at once; all of them would take memory quadratic in their number."""


def padded(count: int) -> int:
    return -(-count // TILE) * TILE


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of a layer, transposed for multiplication from the right."""

    qkv: Array  # (D, (H + 2K) d)
    bias: Array | None  # ((H + 2K) d,)
    o: Array  # (H d, D)
    gate: Array  # (D, F)
    up: Array  # (D, F)
    down: Array  # (F, D)


class Model:
    """Model that computes the logits of the next token."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = c = checkpoint.config
        weights = checkpoint.tensors
        self._embedding = weights["model.embed_tokens.weight"]  # (V, D)
        self._layers = [_layer(c, weights, f"model.layers.{i}") for i in range(c.num_hidden_layers)]
        head = weights["model.embed_tokens.weight" if c.tie_word_embeddings else "lm_head.weight"]
        # Columns padded to a multiple of TILE.
        self._head = np.zeros((c.hidden_size, padded(c.vocab_size)), np.float32)
        self._head[:, : c.vocab_size] = (head * weights["model.norm.weight"]).T  # (D, V)
        angles = np.arange(c.max_position_embeddings)[:, None] * (
            c.rope_theta ** -(np.arange(0, c.head_dim, 2) / c.head_dim)
        )
        self._rotations = np.exp(1j * angles).astype(np.complex64)  # (positions, d / 2)

    def prefill(self, tokens: Ints) -> tuple[Array, Array]:
        """Process prompts of equal length, (R, T).

        Return the logits of the next token (R, V), and keys and values (L, R, 2, K, T, d).
        """
        c = self.config
        rows, length = tokens.shape
        wide = padded(length)
        # Padding follows the prompt, where the causal mask hides it.
        x = self._embedding[np.pad(tokens, ((0, 0), (0, wide - length)))].reshape(rows * wide, -1)
        rotations = self._rotations[np.minimum(np.arange(wide), c.max_position_embeddings - 1)]
        rotations = np.tile(rotations, (rows, 1))  # (R T, d / 2)
        seen = np.empty((rows, wide, c.num_attention_heads * c.head_dim), np.float32)
        groups = c.num_attention_heads // c.num_key_value_heads
        cache = np.empty((c.num_hidden_layers, rows, 2, c.num_key_value_heads, length, c.head_dim), np.float32)
        for layer, keys_values in zip(self._layers, cache, strict=True):
            q, kv = self._project(x, layer, rotations)
            q = q.reshape(rows, wide, -1, groups, c.head_dim).transpose(0, 2, 3, 1, 4)  # (R, K, G, T, d)
            kv = kv.reshape(rows, wide, 2, -1, c.head_dim).transpose(0, 2, 3, 1, 4)  # (R, 2, K, T, d)
            keys_values[...] = kv[..., :length, :]
            # The last part may be longer: BLAS rounds small products differently.
            for begin, end in pairwise([*range(0, max(wide - _QUERIES, 0) + 1, _QUERIES), wide]):
                hidden = _hidden(wide, np.arange(begin, end))
                few = _attend(q[..., begin:end, :], kv[:, 0, :, None], kv[:, 1, :, None], hidden)
                seen[:, begin:end] = few.transpose(0, 3, 1, 2, 4).reshape(rows, end - begin, -1)
            x += seen.reshape(rows * wide, -1) @ layer.o
            self._feed_forward(x, layer)
        return self._logits(x.reshape(rows, wide, -1)[:, length - 1]), cache

    def decode(self, tokens: Ints, positions: Ints, cache: Array) -> Array:
        """Process one more token of each sequence, (R,), and return the logits of the next token (R, V).

        ``positions`` (R,) are those of the tokens in their sequences. The tokens' keys and values are written into
        ``cache`` (L, R or more, 2, K, T, d).
        """
        c = self.config
        rows = len(tokens)
        index = np.arange(rows)
        x = np.zeros((padded(rows), c.hidden_size), np.float32)
        x[:rows] = self._embedding[tokens]
        rotations = np.ones((len(x), c.head_dim // 2), np.complex64)
        rotations[:rows] = self._rotations[positions]
        seen = np.zeros((len(x), c.num_attention_heads * c.head_dim), np.float32)
        wide = max(LEAST_POSITIONS, padded(int(positions.max()) + 1))
        hidden = _hidden(wide, positions)[:, None, None, None]  # (R, K, G, one query, T)
        shape = (rows, c.num_key_value_heads, -1, 1, c.head_dim)
        for layer, keys_values in zip(self._layers, cache, strict=True):
            q, kv = self._project(x, layer, rotations)
            keys_values[index, :, :, positions] = kv[:rows].reshape(rows, 2, -1, c.head_dim)
            past = keys_values[:rows, :, :, None, :wide]  # (R, 2, K, 1, T, d)
            seen[:rows] = _attend(q[:rows].reshape(shape), past[:, 0], past[:, 1], hidden).reshape(rows, -1)
            x += seen @ layer.o
            self._feed_forward(x, layer)
        return self._logits(x)[:rows]

    def _project(self, x: Array, layer: Layer, rotations: npt.NDArray[np.complex64]) -> tuple[Array, Array]:
        """Return rotated queries (R, H, d), and rotated keys with values (R, 2 K, d)."""
        c = self.config
        qkv: Array = self._normed(x) @ layer.qkv
        if layer.bias is not None:
            qkv += layer.bias
        heads = qkv.reshape(len(x), -1, c.head_dim)
        turned = heads[:, : -c.num_key_value_heads].view(np.complex64)
        turned *= rotations[:, None]
        return heads[:, : c.num_attention_heads], heads[:, c.num_attention_heads :]

    def _feed_forward(self, x: Array, layer: Layer) -> None:
        """Add SwiGLU (arXiv:2002.05202) of the normed residual to the residual, in place."""
        normed = self._normed(x)
        gate: Array = normed @ layer.gate  # (R, F)
        up: Array = normed @ layer.up  # (R, F)
        up *= gate
        np.negative(gate, out=gate)
        np.exp(gate, out=gate)  # infinite for a closed gate, as intended
        gate += 1
        up /= gate
        x += up @ layer.down

    def _normed(self, x: Array) -> Array:
        """RMSNorm (arXiv:1910.07467) without its gain: x / √(mean x² + ε)."""
        mean_square = np.vecdot(x, x)[:, None] / np.float32(x.shape[1])
        return np.asarray(x / np.sqrt(mean_square + np.float32(self.config.rms_norm_eps)), np.float32)

    def _logits(self, x: Array) -> Array:
        wide = np.zeros((padded(len(x)), x.shape[1]), np.float32)
        wide[: len(x)] = self._normed(x)
        return (wide @ self._head)[: len(x), : self.config.vocab_size]


def _hidden(wide: int, positions: Ints) -> Array:
    """Return what hides later places from positions (Q,): shape (Q, T), added to attention."""
    return np.where(np.arange(wide) > positions[:, None], np.float32(-np.inf), np.float32(0))


def _attend(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Softmax attention; q is (…, Q, d) and already scaled, k and v are (…, T, d), the mask is added to (…, Q, T)."""
    weights = q @ k.swapaxes(-1, -2)
    weights += mask
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    # Not weights.sum(-1), whose summation order depends on T.
    total: Array = np.einsum("...t->...", weights)
    seen: Array = np.matmul(weights, v, dtype=np.float32)
    seen /= total[..., None]
    return seen


def _layer(c: ModelConfig, weights: dict[str, Array], name: str) -> Layer:
    attention, ffn = f"{name}.self_attn", f"{name}.mlp"
    before, between = weights[f"{name}.input_layernorm.weight"], weights[f"{name}.post_attention_layernorm.weight"]

    def qkv(part: str) -> Array:
        q, k, v = (weights[f"{attention}.{letter}_proj.{part}"] for letter in "qkv")
        scale = np.float32(c.head_dim**-0.5)
        return np.concatenate([_interleaved(q, c.head_dim) * scale, _interleaved(k, c.head_dim), v])

    return Layer(
        qkv=_right(qkv("weight") * before),
        bias=qkv("bias") if c.qkv_bias else None,
        o=_right(weights[f"{attention}.o_proj.weight"]),
        gate=_right(weights[f"{ffn}.gate_proj.weight"] * between),
        up=_right(weights[f"{ffn}.up_proj.weight"] * between),
        down=_right(weights[f"{ffn}.down_proj.weight"]),
    )


def _interleaved(rows: Array, head_dim: int) -> Array:
    """Interleave the halves of each head, (H d, …), so that RoPE's pairs are adjacent."""
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _right(weight: Array) -> Array:
    """Return a matrix (out, in) as a contiguous (in, out)."""
    return np.ascontiguousarray(weight.T)
