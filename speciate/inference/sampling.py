"""Sample tokens for many sequences at once; each row depends on its own logits and random numbers only."""

from typing import Final

import numpy as np
import numpy.typing as npt

from speciate.inference.checkpoint import Array

Tokens = npt.NDArray[np.intp]

_HEAD: Final = 256
"""Weights that are sorted for top-p; all of them only in rows where these do not suffice."""


def uniforms(seed: int, index: int, count: int) -> Array:
    return np.random.default_rng((seed, index)).random(count, np.float32)


def sample(logits: Array, temperature: Array, top_p: Array, uniform: Array) -> tuple[Tokens, Array]:
    """Sample a token for each row of finite logits (R, V).

    A temperature of 0 takes the likeliest token. With top-p < 1 tokens are drawn from the smallest set with this mass;
    all tokens tied at its edge belong to it. ``uniform`` lies in [0, 1). The log-probabilities returned with the
    tokens, both (R,), are those before temperature and top-p, as vLLM reports them.
    """
    rows = np.arange(len(logits))
    shifted = logits - logits.max(1, keepdims=True)
    raw = np.exp(shifted)
    normaliser = np.log(raw.sum(1))
    greedy = temperature == 0
    weights = raw
    if (temperature != 1).any():
        with np.errstate(over="ignore"):  # with a tiny temperature all but the maximum become -inf, as intended
            weights = np.exp(shifted / np.where(greedy, np.float32(1), temperature)[:, None])
    cut = np.flatnonzero(top_p < 1)
    if len(cut):
        weights = np.array(weights)
        weights[cut] = nucleus(weights[cut], top_p[cut])
    mass = weights.cumsum(1)
    total = mass[:, -1]
    # Rounding must not raise the target to the total: no token lies beyond it.
    target = np.minimum(uniform * total, np.nextafter(total, np.float32(0)))
    tokens = (mass > target[:, None]).argmax(1)
    if greedy.any():
        tokens = np.where(greedy, shifted.argmax(1), tokens)
    return tokens, shifted[rows, tokens] - normaliser


def nucleus(weights: Array, top_p: Array) -> Array:
    """Return weights (R, V) with those outside the nucleus (arXiv:1904.09751) set to 0; they need not sum to 1."""
    least = top_p * weights.sum(1)
    count = min(_HEAD, weights.shape[1])
    edge = _edge(np.partition(weights, -count, axis=1)[:, -count:], least)
    if len(wide := np.flatnonzero(np.isnan(edge))):
        edge[wide] = _edge(weights[wide], least[wide])
        edge = np.nan_to_num(edge, copy=False)  # rounding: the mass of all weights is just short of the wanted one
    return np.where(weights < edge[:, None], np.float32(0), weights)


def _edge(largest: Array, mass: Array) -> Array:
    """Return the least weight that belongs to the nucleus (R,), from the largest weights; NaN if more are needed."""
    descending = np.sort(largest, axis=1)[:, ::-1]
    reached = descending.cumsum(1) >= mass[:, None]
    edge = descending[np.arange(len(largest)), reached.argmax(1)]
    return np.where(reached.any(1), edge, np.float32(np.nan))


def top_logprobs(logits: Array, count: int) -> tuple[Tokens, Array]:
    """Return the likeliest tokens of each row in descending order, (R, count), and their log-probabilities."""
    count = min(count, logits.shape[1])
    ids = np.argpartition(logits, -count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(logits, ids, 1), axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, 1)
    shifted = logits - logits.max(1, keepdims=True)
    return ids, np.take_along_axis(shifted, ids, 1) - np.log(np.exp(shifted).sum(1))[:, None]
