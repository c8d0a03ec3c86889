"""The archive in Redis: one hash per run and island, rebuilt from PostgreSQL whenever it is not whole.

A marker says whether a run's hashes are whole. Updates are applied only while a marker of any kind exists, and a
rebuild sets its marker *before* it reads PostgreSQL: a commit that the reading misses is then applied by its own
update, and since a cell only ever takes a higher fitness, the order of the two does not matter.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast
from uuid import UUID

import redis

from speciate.search.strategy import Placement
from speciate.storage.population import EliteRow

CachedRow = tuple[str, int, float, tuple[float, ...]]
"""``(cell, number, fitness, raw rewards)``."""

_HEAD: Final = struct.Struct("<dq")
_EXPIRY_S: Final = 7 * 24 * 3600
_BUILDING: Final = b"building"
_WHOLE: Final = b"whole"
_log = logging.getLogger(__name__)

# KEYS: marker, then the hash of each update. ARGV: expiry, then cell and packed value of each update.
_APPLY: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local applied = 0
for i = 2, #KEYS do
  local cell, value = ARGV[2 * i - 2], ARGV[2 * i - 1]
  local held = redis.call('HGET', KEYS[i], cell)
  if not held or struct.unpack('<d', value) > struct.unpack('<d', held) then
    redis.call('HSET', KEYS[i], cell, value)
    applied = applied + 1
  end
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return applied
"""


class ElitesCache:
    """Elites of every run: ids, fitness and rewards, never programs."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._apply = client.register_script(_APPLY)

    def read(self, run_id: UUID, island: int, load: Callable[[], Sequence[EliteRow]]) -> list[CachedRow]:
        """Return an island's elites; rebuilds the run's cache by ``load`` when it is not whole.

        Without Redis the answer comes from ``load`` alone.
        """
        try:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.get(_marker(run_id))
            pipeline.hgetall(_key(run_id, island))
            marker, packed = pipeline.execute()
            if marker == _WHOLE:
                return [_unpack(cell, value) for cell, value in packed.items()]
            rows = self.rebuild(run_id, load)
        except redis.RedisError as error:
            _log.warning("the archive is read from PostgreSQL, Redis does not answer: %s", error)
            rows = list(load())
        return [row for at, row in rows if at == island]

    def apply(self, run_id: UUID, placements: Sequence[Placement]) -> None:
        """Spread granted updates; cells only ever take a higher fitness, so repeating one is harmless."""
        if placements:
            keys = [_marker(run_id), *(_key(run_id, p.island) for p in placements)]
            values: list[Any] = [_EXPIRY_S]
            for p in placements:
                values += [p.cell, _pack(p.number, p.fitness, p.rewards)]
            self._apply(keys=keys, args=values)

    def rebuild(self, run_id: UUID, load: Callable[[], Sequence[EliteRow]]) -> list[EliteRow]:
        """Fill a run's cache from ``load`` and mark it whole; return what was loaded."""
        self._redis.set(_marker(run_id), _BUILDING, ex=_EXPIRY_S)
        rows = list(load())
        for start in range(0, len(rows), 512):
            self.apply(run_id, [_placement(row) for row in rows[start : start + 512]])
        # Only if the marker still stands: after a FLUSHALL in between, whoever reads next starts again.
        self._redis.set(_marker(run_id), _WHOLE, ex=_EXPIRY_S, xx=True)
        return rows

    def forget(self, run_ids: Iterable[UUID]) -> None:
        """Mark the caches of runs as not whole, so that the next reader rebuilds them."""
        keys = [_marker(run_id) for run_id in run_ids]
        if keys:
            self._redis.delete(*keys)

    def is_whole(self, run_id: UUID) -> bool:
        """Tell whether a run's cache can be trusted."""
        return cast("bytes | None", self._redis.get(_marker(run_id))) == _WHOLE


def _marker(run_id: UUID) -> str:
    return f"speciate:elites:{run_id}"


def _key(run_id: UUID, island: int) -> str:
    return f"speciate:elites:{run_id}:{island}"


def _pack(number: int, fitness: float, rewards: Sequence[float]) -> bytes:
    return _HEAD.pack(fitness, number) + struct.pack(f"<{len(rewards)}d", *rewards)


def _unpack(cell: bytes, value: bytes) -> CachedRow:
    fitness, number = _HEAD.unpack_from(value)
    count = (len(value) - _HEAD.size) // 8
    return cell.decode(), number, fitness, struct.unpack_from(f"<{count}d", value, _HEAD.size)


def _placement(row: EliteRow) -> Placement:
    island, (cell, number, fitness, rewards) = row
    return Placement(number, island, cell, fitness, rewards)
