"""The clients: requests at a steady rate and viewers of streams, in a process of their own.

``python -m benchmarks.chaos.callers ORDER`` reads where to ask from a JSON file, learns of runs from a file that grows,
and on SIGTERM writes what it saw. Latency is counted from sending to the last byte, a second try at the other replica
included.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.wire import Replicas, events

CONNECTIONS = 32
_MIX = (
    ("/v1/runs/{run}", 35),
    ("/v1/runs?limit=20", 15),
    ("/v1/runs/{run}/candidates?limit=20", 15),
    ("/v1/runs/{run}/events?limit=100", 10),
    ("/healthz", 10),
    ("/v1/runs/{run}/archive", 5),
    ("/v1/unlocks?limit=20", 5),
    ("/v1/workers", 5),
)


@dataclass
class Seen:
    """Observations of the clients.

    Attributes:
        latencies_ms: Of every request that was answered.
        statuses: Answers by status; 0 is no answer from any replica.
        refusals: What was answered with another status than 200, in words: route, status, message.
        passed_over: Times that a request went on to the other replica.
        followed: Runs whose stream a viewer saw to its end.
        violations: Gaps and repetitions in streams.
        reconnects: Times that a stream broke off and was taken up again.
    """

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    passed_over: int = 0
    followed: int = 0
    events: int = 0
    violations: list[str] = field(default_factory=list)
    reconnects: int = 0


class Callers:
    """Everybody who asks."""

    def __init__(self, ports: list[int], runs: Path, rate: float, viewers: int, seed: int) -> None:
        self.seen = Seen()
        self._ports = ports
        self._file = runs
        self._rate = rate
        self._viewers = viewers
        self._rng = random.Random(seed)
        self._runs: list[str] = []
        self._stop = asyncio.Event()

    async def run(self) -> Seen:
        """Ask until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        begun = time.monotonic()
        work = [self._ask(begun + i / self._rate) for i in range(CONNECTIONS)]
        work += [self._view(i) for i in range(self._viewers)]
        tasks = [asyncio.create_task(each) for each in (self._learn(), *work)]
        await self._stop.wait()
        self.seen.seconds = time.monotonic() - begun
        # Python 3.11 loses a cancellation that comes in the moment in which what is waited for is done.
        while tasks:
            for task in tasks:
                task.cancel()
            tasks = list((await asyncio.wait(tasks, timeout=1.0))[1])
        return self.seen

    async def _learn(self) -> None:
        while True:
            if self._file.exists():
                self._runs = self._file.read_text().split()
            await asyncio.sleep(0.5)

    async def _ask(self, due: float) -> None:
        client = Replicas(self._ports, turn=self._rng.randrange(2))
        paths = [path for path, share in _MIX for _ in range(share)]
        try:
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                # A late caller does not catch up. The report has the achieved rate.
                due = max(due + CONNECTIONS / self._rate, time.monotonic() - 1.0)
                if not self._runs:
                    continue
                route = self._rng.choice(paths)
                at = time.perf_counter()
                status, body = await client.get(route.format(run=self._rng.choice(self._runs[-100:])))
                self.seen.statuses[status] += 1
                if status not in {0, 200}:
                    self.seen.refusals[f"{route}: {status} {body[:300].decode(errors='replace')}"] += 1
                if status:
                    self.seen.latencies_ms.append((time.perf_counter() - at) * 1000)
        finally:
            self.seen.passed_over += client.passed_over
            client.close()

    async def _view(self, turn: int) -> None:
        seen = 0
        while True:
            if seen >= len(self._runs):
                await asyncio.sleep(0.5)
                continue
            # Each viewer begins with another run and goes on to newer ones, leaving out what has long ended.
            seen = max(seen, turn % max(1, len(self._runs)), len(self._runs) - 100)
            await self._follow(self._runs[seen], turn)
            seen += 1

    async def _follow(self, run: str, turn: int) -> None:
        after = 0
        while True:
            turn += 1
            async for seq in events(self._ports[turn % len(self._ports)], run, after):
                if seq is None:
                    self.seen.followed += 1
                    return
                if seq != after + 1:
                    self.seen.violations.append(f"run {run}: event {seq} came after {after}")
                after = seq
                self.seen.events += 1
            self.seen.reconnects += 1
            await asyncio.sleep(0.3)


def main(order: Path) -> None:
    """Do as the file says; the answer lies beside it."""
    told = json.loads(order.read_text())
    callers = Callers(told["ports"], Path(told["runs"]), told["rate"], told["viewers"], told["seed"])
    seen = asyncio.run(callers.run())
    order.with_suffix(".seen").write_text(json.dumps(vars(seen)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
