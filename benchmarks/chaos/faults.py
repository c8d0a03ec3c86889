"""Inject faults in a seeded order and measure the recovery time of each kind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import httpx
import psutil
import redis
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.fleet import SECOND, STANDBY, Fleet
from speciate.embedded.errors import EmbeddedServerError
from speciate.storage.stores import Stores

KILL, RESTART, CHILD, FLUSH = "kill -9", "restart", "kill -9 of a pool process", "FLUSHALL"
PARTS = ("api", SECOND, "policies", "evaluate", "generate", "learn", "control", STANDBY, "postgres", "valkey")
KINDS: tuple[tuple[str, str], ...] = (
    *((KILL, part) for part in PARTS),
    (CHILD, "evaluate"),
    (FLUSH, "valkey"),
    *((RESTART, part) for part in PARTS),
)
# A training step takes as long as it takes; its lease has to become free only if its own worker is broken.
_LEASED = sa.text("SELECT id, lease_token FROM work WHERE state = 'leased' AND (kind <> 'learn' OR :learns)")
_HELD = sa.text("SELECT count(*) FROM work WHERE id = ANY(:ids) AND lease_token = ANY(:tokens) AND state = 'leased'")
_LIMIT_S = 300.0


@dataclass
class Fault:
    """One fault.

    Attributes:
        freed_s: Seconds until the leases held at that time were completed or returned.
        back_s: Seconds until the part worked again: an API answers, a worker is announced, a server answers.
    """

    kind: str
    part: str
    at_s: float
    freed_s: float | None = None
    back_s: float | None = None


def order(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield faults for ever: every kind once, in an order of its own each time."""
    while True:
        yield from rng.sample(KINDS, len(KINDS))


@dataclass
class Breaker:
    """Breaks parts of a fleet and watches them mend; only one thread may break."""

    fleet: Fleet
    stores: Stores
    begun: float
    faults: list[Fault] = field(default_factory=list)
    _watching: list[threading.Thread] = field(default_factory=list)

    def break_one(self, kind: str, part: str) -> None:
        """Do one fault; ``Fleet.restart_ended`` starts again what ended."""
        leased = self._read(_LEASED, learns=part in {"learn", "postgres"})
        fault = Fault(kind, part, time.monotonic() - self.begun)
        before = self.fleet.pid(part)
        match kind:
            case "kill -9":
                self.fleet.kill(part)
            case "restart":
                self.fleet.restart(part)
            case "FLUSHALL":
                with suppress(redis.RedisError):
                    self.stores.redis.flushall()
            case _:
                with suppress(psutil.Error):
                    for child in psutil.Process(before).children()[:1]:
                        child.kill()
        self.faults.append(fault)
        held = [tuple(row) for row in leased]
        changed = kind in {KILL, RESTART}
        watch = threading.Thread(target=self._watch, args=(fault, held, before if changed else 0), daemon=True)
        watch.start()
        self._watching.append(watch)

    def wait(self) -> None:
        """Wait until everything has recovered, at most for the limit."""
        for watch in self._watching:
            watch.join(_LIMIT_S)

    def _watch(self, fault: Fault, held: list[tuple[UUID, UUID]], before: int) -> None:
        at = self.begun + fault.at_s
        keys = {"ids": [work for work, _ in held], "tokens": [token for _, token in held]}
        checks: dict[str, Callable[[], bool]] = {
            "freed_s": lambda: self._count(keys) == 0,
            "back_s": lambda: self._works(fault.part, before),
        }
        while checks and time.monotonic() - at < _LIMIT_S:
            for name in [name for name, done in checks.items() if done()]:
                setattr(fault, name, time.monotonic() - at)
                del checks[name]
            time.sleep(0.1)

    def _works(self, part: str, before: int) -> bool:
        try:
            if self.fleet.pid(part) == before:
                return False
            if part in self.fleet.ports:
                url = f"http://127.0.0.1:{self.fleet.ports[part]}/readyz"
                return httpx.get(url, timeout=5, trust_env=False).status_code == 200
            if part == "policies":
                url = f"http://127.0.0.1:{self.fleet._policy_port}/health"
                return httpx.get(url, timeout=5, trust_env=False).status_code == 200
            if part == "postgres":
                return self._count({"ids": [], "tokens": []}) == 0
            if part == "valkey":
                return bool(self.stores.redis.ping())
            found = [key.decode() for key in self.stores.redis.scan_iter(match=f"speciate:worker:{part}@*")]
            pids = [self.stores.redis.get(key) or b"" for key in found]
            return any(f'"pid":{self.fleet.pid(part)}'.encode() in bytes(said) for said in pids)  # type: ignore[arg-type]
        except (httpx.TransportError, redis.RedisError, EmbeddedServerError, OSError, KeyError):
            return False

    def _count(self, keys: dict[str, list[UUID]]) -> int:
        try:
            with self.stores.engine.connect() as connection:
                return int(connection.execute(_HELD, keys).scalar_one())
        except (DBAPIError, sa.exc.TimeoutError):
            return -1

    def _read(self, query: sa.TextClause, **values: object) -> list[sa.Row[tuple[UUID, UUID]]]:
        try:
            with self.stores.engine.connect() as connection:
                return list(connection.execute(query, values))
        except (DBAPIError, sa.exc.TimeoutError):
            return []
