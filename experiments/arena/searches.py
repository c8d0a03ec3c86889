"""Make one search in a process of its own, for ``__main__``, whose functions such a process cannot find."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable

import numpy as np

from experiments.arena.plan import MARKS, MINUTES
from experiments.arena.problems import limit_memory
from experiments.arena.simulation import Job, searched

Row = tuple[str, ...]
"""Part, arm, problem, seed, mark, best value and coverage."""


def prepare() -> None:
    limit_memory()
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")  # of candidates


def rows_of(declared: tuple[str, str, Job]) -> list[Row]:
    part, arm, job = declared
    curve = searched(job)
    marks: Iterable[tuple[str, int]] = [(str(mark), mark - 1) for mark in MARKS if mark <= len(curve.best)]
    if part.startswith("clock"):
        ends = np.array(curve.seconds)
        marks = [(f"{m} min", int(np.searchsorted(ends, 60 * m, side="right")) - 1) for m in MINUTES]
    return [
        (part, arm, job.problem, str(job.seed), mark, f"{curve.best[i]:.6g}", f"{curve.coverage[i]:.6g}")
        for mark, i in marks
        if i >= 0
    ]
