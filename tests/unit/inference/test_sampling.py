"""Sampled tokens follow their distribution."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.inference.sampling import nucleus, sample, top_logprobs, uniforms

LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))


def _frequencies(temperature: float, top_p: float, count: int = 40_000) -> np.ndarray:
    many = np.tile(LOGITS, (count, 1))
    uniform = (np.arange(count, dtype=np.float32) + 0.5) / count
    tokens, logprobs = sample(many, np.full(count, temperature, np.float32), np.full(count, top_p, np.float32), uniform)
    assert np.allclose(logprobs, LOGITS[tokens], atol=1e-6)  # before temperature and top-p
    return np.bincount(tokens, minlength=4) / count


@pytest.mark.parametrize(
    ("temperature", "top_p", "wanted"),
    [
        (1.0, 1.0, [0.5, 0.3, 0.15, 0.05]),
        (0.5, 1.0, np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
        (1.0, 0.9, np.array([0.5, 0.3, 0.15, 0]) / 0.95),
        (1.0, 0.79, np.array([0.5, 0.3, 0, 0]) / 0.8),
        (1.0, 0.4, [1, 0, 0, 0]),
        (1.0, 1e-9, [1, 0, 0, 0]),
        (0.0, 1.0, [1, 0, 0, 0]),
        (1e-12, 1.0, [1, 0, 0, 0]),
    ],
)
def test_distribution(temperature: float, top_p: float, wanted: np.ndarray) -> None:
    assert np.allclose(_frequencies(temperature, top_p), wanted, atol=1e-3)


def test_the_nucleus_is_the_smallest_set_with_the_mass() -> None:
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=(200, 30)).astype(np.float32) ** 3
    top_p = rng.uniform(0.05, 0.99, 200).astype(np.float32)
    kept = nucleus(weights, top_p)
    for before, after, mass in zip(weights, kept, top_p, strict=True):
        ordered = np.sort(before)[::-1].astype(float)
        size = int((np.cumsum(ordered) < mass * ordered.sum()).sum()) + 1
        assert np.count_nonzero(after) == size
        assert np.array_equal(after[after > 0], before[after > 0])


def test_rows_with_different_parameters() -> None:
    logits = np.tile(LOGITS, (3, 1))
    uniform = np.full(3, 0.99, np.float32)
    tokens, _ = sample(logits, np.array([0, 1, 1], np.float32), np.array([1, 0.5, 1], np.float32), uniform)
    assert tokens.tolist() == [0, 0, 3]


def test_the_largest_uniform_draws_a_possible_token() -> None:
    logits = np.array([[0.0, 0.0, 0.0, -np.inf]], np.float32)
    one = np.ones(1, np.float32)
    assert sample(logits, one, one, np.nextafter(one, 0))[0].tolist() == [2]
    assert sample(logits, one, one, one)[0].tolist() == [2]


def test_top_logprobs_descend() -> None:
    ids, logprobs = top_logprobs(np.stack([LOGITS, LOGITS[::-1]]), 3)
    assert ids.tolist() == [[0, 1, 2], [3, 2, 1]]
    assert np.allclose(np.exp(logprobs), [[0.5, 0.3, 0.15]] * 2)


def test_uniforms_differ_by_seed_and_index() -> None:
    assert np.array_equal(uniforms(1, 2, 5), uniforms(1, 2, 9)[:5])
    assert len({uniforms(s, i, 1)[0] for s in range(10) for i in range(10)}) == 100


def test_the_nucleus_of_a_large_vocabulary_equals_that_of_a_full_sort() -> None:
    rng = np.random.default_rng(1)
    flat, steep = rng.random((8, 5000), np.float32), rng.exponential(size=(8, 5000)).astype(np.float32) ** 9
    weights = np.concatenate([flat, steep])
    top_p = np.tile(np.array([0.1, 0.5, 0.9, 0.999], np.float32), 4)
    for before, after, mass in zip(weights, nucleus(weights, top_p), top_p, strict=True):
        ordered = np.sort(before)[::-1].astype(float)
        size = int((np.cumsum(ordered) < mass * ordered.sum()).sum()) + 1
        assert abs(np.count_nonzero(after) - size) <= 1  # float32
        assert after.max() == before.max()
