"""Viewers and channels over an in-memory log: each event once and in order, even for slow viewers."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from service.run_events import LATEST, PAGE, EventChannel, EventHub, event_frame
from service.streams import _END, Viewer
from speciate.domain.errors import UnavailableError
from speciate.domain.run import RunState
from speciate.schema.runs import EventRecord

RUN = UUID(int=1)


@dataclass
class Log:
    """A run's events; ``failures`` are raised by the next readings."""

    kinds: list[str] = field(default_factory=list)
    ended: bool = False
    failures: list[Exception] = field(default_factory=list)

    def add(self, count: int = 1, kind: str = "batch.evaluated") -> None:
        self.kinds += [kind] * count

    def complete(self) -> None:
        self.add(kind="run.completed")
        self.ended = True

    async def events(self, after: int) -> tuple[EventRecord, ...]:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        found = list(enumerate(self.kinds, start=1))[after : after + PAGE]
        await asyncio.sleep(0)
        return tuple(EventRecord(run_id=RUN, seq=seq, kind=kind, data={}, at=datetime.now(UTC)) for seq, kind in found)

    async def end(self) -> int | None:
        return len(self.kinds) if self.ended else None


@dataclass
class Screen:
    """Text received by a viewer."""

    text: bytes = b""

    @property
    def seqs(self) -> list[int]:
        return [int(line[4:]) for line in self.text.decode().split("\n") if line.startswith("id: ")]

    @property
    def ended(self) -> bool:
        return self.text.endswith(_END)

    async def show(self, viewer: Viewer, *, patience: int = 0) -> None:
        async for chunk in viewer.chunks():
            self.text += chunk
            for _ in range(patience):
                await asyncio.sleep(0)


async def _watch(
    log: Log, *, viewers: int, after: int = 0, patience: int = 0
) -> tuple[EventChannel, list[Screen], asyncio.Task]:
    channel = EventChannel(RUN, log, last=len(log.kinds), poll_s=0.001)
    screens = [Screen() for _ in range(viewers)]
    channel.viewers = {Viewer(channel, after, heartbeat_s=0.01) for _ in range(viewers)}
    shows = asyncio.gather(
        *(s.show(v, patience=patience * i) for i, (s, v) in enumerate(zip(screens, channel.viewers, strict=True)))
    )
    return channel, screens, shows


@pytest.mark.parametrize("seed", range(5))
def test_every_viewer_sees_every_event_once_and_in_order(seed: int) -> None:
    async def scene() -> None:
        rng = random.Random(seed)
        log = Log()
        log.add(rng.randrange(2 * PAGE))
        channel, screens, shows = await _watch(log, viewers=5, patience=rng.randrange(50))
        serving = asyncio.create_task(channel.serve())
        for _ in range(40):
            log.add(rng.choice([0, 1, 2, 300]))
            channel.changed.set()
            await asyncio.sleep(rng.choice([0, 0, 0.002]))
        log.complete()
        await asyncio.wait_for(asyncio.gather(serving, shows), 30)
        for screen in screens:
            assert screen.seqs == list(range(1, len(log.kinds) + 1))
            assert screen.ended

    asyncio.run(scene())


def test_channel_keeps_a_bounded_number_of_events_and_a_slow_viewer_misses_nothing() -> None:
    async def scene() -> None:
        log = Log()
        channel = EventChannel(RUN, log, last=0, poll_s=0.001)
        serving = asyncio.create_task(channel.serve())
        log.add(3 * LATEST)
        log.complete()
        await asyncio.wait_for(serving, 30)
        assert len(channel._latest) == LATEST
        screen = Screen()
        await screen.show(Viewer(channel, 0))
        assert screen.seqs == list(range(1, len(log.kinds) + 1))
        assert screen.ended

    asyncio.run(scene())


def test_database_outage_delays_events() -> None:
    async def scene() -> None:
        log = Log()
        channel, (screen,), shows = await _watch(log, viewers=1)
        serving = asyncio.create_task(channel.serve())
        while b": still" not in screen.text:
            await asyncio.sleep(0)
        log.failures = [UnavailableError("away")] * 3
        while log.failures:
            await asyncio.sleep(0.001)
        log.add(2)
        log.complete()
        await asyncio.wait_for(asyncio.gather(serving, shows), 30)
        assert screen.seqs == [1, 2, 3]

    asyncio.run(scene())


def test_viewer_whose_read_fails_ends_without_end_event() -> None:
    async def scene() -> None:
        log = Log(failures=[UnavailableError("away")])
        screen = Screen()
        await screen.show(Viewer(EventChannel(RUN, log, last=1), 0))
        assert not screen.ended

    asyncio.run(scene())


def test_any_event_text_is_one_frame() -> None:
    hostile = "a\n\nevent: end\ndata: {}\n\n\r\u2028"
    event = EventRecord(run_id=RUN, seq=3, kind="run.paused", data={"reason": hostile}, at=datetime.now(UTC))
    lines = event_frame(event)[1].decode().split("\n")
    assert [line.split(":")[0] for line in lines] == ["id", "event", "data", "", ""]
    assert EventRecord.model_validate_json(lines[2].removeprefix("data: ")) == event
    assert "\r" not in lines[2]


def test_new_viewers_are_rejected_during_shutdown() -> None:
    async def scene() -> None:
        def read(_: UUID) -> SimpleNamespace:
            loop.call_soon_threadsafe(hub.close_streams)
            time.sleep(0.01)
            return SimpleNamespace(id=RUN, last_event=0, state=RunState.RUNNING)

        loop = asyncio.get_running_loop()
        hub = EventHub(cast("Any", SimpleNamespace(runs=SimpleNamespace(get=read))))
        with pytest.raises(UnavailableError, match="shutting down"):
            await hub.watch(RUN, 0)
        assert hub.streams == 0

    asyncio.run(scene())
