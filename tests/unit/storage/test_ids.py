from __future__ import annotations

import os
import time
import uuid
from itertools import pairwise

import pytest

from speciate.storage.rows import floor7, uuid7

HOUR_NS = 3_600_000_000_000


def test_ids_ascend_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    made = []
    for hours in (0, 6, -6, 0):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: real() + hours * HOUR_NS)
        made += [uuid7() for _ in range(1000)]
    assert all(before < after for before, after in pairwise(made))
    assert {(i.version, i.variant) for i in made} == {(7, uuid.RFC_4122)}
    assert floor7(time.time() + 6 * 3600 - 60) < made[-1] < floor7(time.time() + 6 * 3600 + 60)


def test_forked_processes_make_different_ids() -> None:
    uuid7()
    made = []
    for _ in range(2):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, b" ".join(str(uuid7()).encode() for _ in range(100)))
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read, "rb") as pipe:  # noqa: PTH123
            made += pipe.read().split()
    assert len(set(made)) == 200
