from __future__ import annotations

import os
import time
import uuid
from itertools import pairwise

import pytest

from speciate.ids import floor7, uuid7

MINUTE_NS = 60_000_000_000


def test_ids_ascend_unless_the_clock_is_set_back_far(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns

    def made_at(minutes: int) -> list[uuid.UUID]:
        monkeypatch.setattr(time, "time_ns", lambda: real() + minutes * MINUTE_NS)
        return [uuid7() for _ in range(1000)]

    made = [*made_at(0), *made_at(6), *made_at(0), *made_at(-3)]
    assert all(before < after for before, after in pairwise(made))
    assert {(i.version, i.variant) for i in made} == {(7, uuid.RFC_4122)}
    ahead = made_at(60 * 24 * 400)[-1]
    back = made_at(0)[-1]
    assert back < floor7(time.time() + 1) < ahead


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
