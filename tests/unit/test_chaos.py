"""The parts of the storm that judge: leaks are found, and clients notice what is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.chaos import callers
from benchmarks.chaos.faults import KINDS, order
from benchmarks.chaos.watch import Sample, leaks


def _samples(count: int, grows_mb: float, age_s: float = 60.0) -> list[Sample]:
    return [Sample(i, age_s, 100 + grows_mb * i / count, 40, 8) for i in range(count)]


def test_a_leak_is_found_and_a_young_process_has_none() -> None:
    found = leaks({"api": _samples(90, 300), "generate": _samples(90, 20), "control": _samples(90, 300, age_s=3)})
    assert [(leak.part, leak.what) for leak in found] == [("api", "memory_mb")]
    assert "api holds more and more memory_mb: 148, then 348" in str(found[0])


def test_every_fault_comes_before_any_comes_again() -> None:
    first = list(islice(order(random.Random(3)), 2 * len(KINDS)))
    assert sorted(first[: len(KINDS)]) == sorted(first[len(KINDS) :]) == sorted(KINDS)
    assert first == list(islice(order(random.Random(3)), 2 * len(KINDS)))


@pytest.mark.parametrize(
    ("streams", "violations", "reconnects"),
    [
        ([[1, 2, 3, None]], 0, 0),
        ([[1, 2], [3, None]], 0, 1),  # taken up again where it broke off
        ([[1, 3, None]], 1, 0),
        ([[1, 2], [2, 3, None]], 1, 1),
    ],
)
def test_a_viewer_notices_what_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, streams: list[list[int | None]], violations: int, reconnects: int
) -> None:
    waiting = iter(streams)

    async def events(*_: object) -> object:
        for seq in next(waiting):
            yield seq

    monkeypatch.setattr(callers, "events", events)
    everybody = callers.Callers([1, 2], tmp_path / "runs", rate=1, viewers=1, seed=0)
    asyncio.run(everybody._follow("a-run", 0))
    assert (len(everybody.seen.violations), everybody.seen.reconnects) == (violations, reconnects)
    assert everybody.seen.followed == 1


def test_what_was_refused_is_kept_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def get(*_: object) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        return 500, b'{"title":"a defect"}'

    monkeypatch.setattr(callers.Replicas, "get", get)
    everybody = callers.Callers([1, 2], tmp_path / "runs", rate=10_000, viewers=0, seed=0)
    everybody._runs = ["a-run"]

    async def ask_a_while() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(everybody._ask(0.0), 0.2)

    asyncio.run(ask_a_while())
    seen = everybody.seen
    assert sum(seen.refusals.values()) == seen.statuses[500] > 0
    assert all(words.endswith(': 500 {"title":"a defect"}') for words in seen.refusals)
    assert {words.partition(":")[0] for words in seen.refusals} <= {route for route, _ in callers._MIX}
