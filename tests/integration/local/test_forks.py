"""Processes that a scoring function forks."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import speciate
from speciate.evolution.functions import LoadedCandidate

pytestmark = pytest.mark.servers


def square(number: int) -> int:
    return number * number


def pooled(candidate: LoadedCandidate) -> int:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        return sum(pool.map(square, [candidate.call("solve"), 2]))


def test_a_function_may_use_a_pool_of_processes(tmp_path: Path) -> None:
    result = speciate.evolve("def solve():\n    return 1\n", pooled, evaluations=10, data_dir=tmp_path, progress=False)
    assert result.seed == {"score": 5.0}
