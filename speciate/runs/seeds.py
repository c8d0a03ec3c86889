"""Every random choice of a run has a seed that follows from the run's own."""

from __future__ import annotations

import hashlib

import numpy as np


def batch_rng(run_seed: int, ordinal: int) -> np.random.Generator:
    """Return the generator for the choices of one batch."""
    return np.random.default_rng([run_seed, ordinal])


def evaluation_seed(run_seed: int, number: int, repeat: int = 0) -> int:
    """Return the seed of an evaluation, below 2**31.

    Args:
        run_seed: Seed of the run.
        number: Run-wide number of the candidate.
        repeat: 0 for the first evaluation, 1, 2, … for its confirmations.
    """
    digest = hashlib.sha256(f"{run_seed}:{number}:{repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
