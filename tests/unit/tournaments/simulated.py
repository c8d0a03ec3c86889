"""Simulated tournaments: two policies on the same problems, with known solve rates."""

from __future__ import annotations

import numpy as np

PROBLEMS, SEEDS = 40, 8


def tournament(rng: np.random.Generator, shift: float = 0.0, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return successes of two policies, each of shape (PROBLEMS, SEEDS).

    In logits, A is better by ``shift`` on every problem, and better or worse by ``spread`` at random.
    """
    logits = rng.normal(0.0, 1.5, (PROBLEMS, 1))
    change = shift + spread * rng.choice([-1.0, 1.0], (PROBLEMS, 1))
    a = rng.random((PROBLEMS, SEEDS)) < 1 / (1 + np.exp(-logits - change))
    b = rng.random((PROBLEMS, SEEDS)) < 1 / (1 + np.exp(-logits))
    return a, b


def differences(rng: np.random.Generator, shift: float = 0.0, spread: float = 0.0) -> np.ndarray:
    """Return the differences of solve rates in one simulated tournament, shape (PROBLEMS,)."""
    a, b = tournament(rng, shift, spread)
    return np.asarray(a.mean(axis=1) - b.mean(axis=1))


def methods(
    rng: np.random.Generator, runs: int, shift: float = 0.0, noise: float = 0.5, base: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return solve rates of two methods, each of shape (runs, PROBLEMS): a training run is searched with SEEDS seeds.

    In logits, A is better by ``shift`` on average; each training run of either deviates from its method by a normal
    number of standard deviation ``noise``, the same on all problems. Run i of both shares a deviation of standard
    deviation ``base``, as if both were trained from one base model.
    """
    logits = rng.normal(0.0, 1.5, PROBLEMS)
    quality = rng.normal(0.0, noise, (2, runs, 1)) + np.array([shift, 0.0])[:, None, None]
    quality = quality + rng.normal(0.0, base, (1, runs, 1))
    rates = rng.binomial(SEEDS, 1 / (1 + np.exp(-logits - quality))) / SEEDS
    return rates[0], rates[1]
