"""Store the running sequences, one row each: key-value cache, next logits, and sampled tokens."""

from typing import Any

import numpy as np

from speciate.inference.checkpoint import Array, ModelConfig
from speciate.inference.model import LEAST_POSITIONS, padded


class SequenceTable:
    """Arrays whose first rows hold the running sequences; they grow on demand and never shrink.

    Attributes:
        live: Number of running sequences.
        cache: (L, rows, 2, K, T, d), keys and values.
        logits: (rows, V), of the next token.
        state: (rows,), a record for each sequence: position (of the next token), count (sampled tokens), limit,
            temperature, top_p, tops, uniforms, tokens and logprobs (one for each token up to the limit).
    """

    def __init__(self, config: ModelConfig) -> None:
        c = self._config = config
        self.live = 0
        self.cache: Array = np.zeros((c.num_hidden_layers, 0, 2, c.num_key_value_heads, 0, c.head_dim), np.float32)
        self.logits: Array = np.zeros((0, c.vocab_size), np.float32)
        self.state = np.zeros(0, _record(0))

    def bytes_with(self, rows: int, length: int, limit: int) -> int:
        c = self._config
        rows, length, limit = self._sizes(rows, length, limit)
        numbers = c.num_hidden_layers * 2 * c.num_key_value_heads * c.head_dim * length + c.vocab_size
        return rows * (4 * numbers + _record(limit).itemsize)

    def reserve(self, rows: int, length: int, limit: int) -> None:
        rows, length, limit = self._sizes(rows, length, limit)
        self.cache = _grown(self.cache, {1: rows, 4: length})
        self.logits = _grown(self.logits, {0: rows})
        if rows > len(self.state) or limit > self._limit:
            before, self.state = self.state, np.zeros(rows, _record(limit))
            for name in before.dtype.names or ():
                old = before[name]
                self.state[name][tuple(slice(size) for size in old.shape)] = old

    def drop(self, row: int) -> None:
        """Remove a sequence; the last one moves into its row."""
        self.live -= 1
        if row != self.live:
            self.state[row] = self.state[self.live]
            length = self.state["position"][row]
            self.cache[:, row, :, :, :length] = self.cache[:, self.live, :, :, :length]

    @property
    def _limit(self) -> int:
        return int(self.state["tokens"].shape[1])

    def _sizes(self, rows: int, length: int, limit: int) -> tuple[int, int, int]:
        return (
            max(1 << (rows - 1).bit_length(), len(self.state)),
            max(LEAST_POSITIONS, padded(length), self.cache.shape[4]),
            max(padded(limit), self._limit),
        )


def _record(limit: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("position", np.intp),
            ("count", np.intp),
            ("limit", np.intp),
            ("temperature", np.float32),
            ("top_p", np.float32),
            ("tops", np.intp),
            ("uniforms", np.float32, (limit,)),
            ("tokens", np.int32, (limit,)),
            ("logprobs", np.float32, (limit,)),
        ]
    )


def _grown(array: Array, sizes: dict[int, int]) -> Array:
    """Return an array with larger axes, filled with zeros: garbage times a masked weight of 0 may be NaN."""
    shape = tuple(sizes.get(axis, size) for axis, size in enumerate(array.shape))
    if shape == array.shape:
        return array
    larger = np.zeros(shape, np.float32)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger
