"""Every random choice of a run has a seed that follows from the run's own and from its problem.

The problem takes part because the runs of a comparison have the same few seeds on every problem. Were their random
numbers the same on all of them, too, a lucky stream would be luck on many problems at once, and no test that counts
problems as independent would keep its level. Policies on one problem do share them, which makes pairs sharper.
"""

from __future__ import annotations

import hashlib

import numpy as np

from speciate.ports.work import RunContext


def batch_rng(context: RunContext, ordinal: int) -> np.random.Generator:
    """Return the generator for the choices of one batch."""
    return np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), ordinal])


def evaluation_seed(context: RunContext, number: int, repeat: int = 0) -> int:
    """Return the seed of an evaluation, below 2**31.

    Args:
        context: What never changes about the run.
        number: Run-wide number of the candidate.
        repeat: 0 for the first evaluation, 1, 2, … for its confirmations.
    """
    text = f"{context.spec.seed}:{context.problem.digest}:{number}:{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
