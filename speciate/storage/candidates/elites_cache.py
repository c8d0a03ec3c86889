"""Cache archives in Redis: one hash per run and island, rebuilt from PostgreSQL whenever it is incomplete.

A marker per run says if its hashes are complete. Updates apply only while a marker exists, and a rebuild sets its
marker *before* it reads PostgreSQL: a commit that the read misses is then applied by its own update, and because a cell
only accepts a higher fitness, their order does not matter. A rebuild fills new hashes and swaps them in atomically,
together with the updates since it began; if another rebuild started meanwhile, it discards them.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast
from uuid import UUID

import redis

from speciate.search.strategy import Placement
from speciate.storage.candidates.population import EliteRow

CachedRow = tuple[str, int, float, tuple[float, ...]]
"""``(cell, number, fitness, raw rewards)``."""

_HEAD: Final = struct.Struct("<dq")
_EXPIRY_S: Final = 7 * 24 * 3600
_BUILDING: Final = "building"
_COMPLETE: Final = b"complete"
_log = logging.getLogger(__name__)

# KEYS: marker, updates since a rebuild began, hash of each update. ARGV: expiry, then cell and packed value of each
# update.
_APPLY: Final = """
local marker = redis.call('GET', KEYS[1])
if not marker then return 0 end
local applied = 0
for i = 3, #KEYS do
  local cell, value = ARGV[2 * i - 4], ARGV[2 * i - 3]
  local held = redis.call('HGET', KEYS[i], cell)
  if not held or struct.unpack('<d', value) > struct.unpack('<d', held) then
    redis.call('HSET', KEYS[i], cell, value)
    applied = applied + 1
  end
  if marker ~= 'complete' then redis.call('RPUSH', KEYS[2], KEYS[i], cell, value) end
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
if marker ~= 'complete' then redis.call('EXPIRE', KEYS[2], ARGV[1]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return applied
"""
# KEYS: marker, updates since the rebuild began, then each hash and its replacement. ARGV: expiry, the rebuild's marker.
_SWAP: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  for i = 4, #KEYS, 2 do redis.call('UNLINK', KEYS[i]) end
  return 0
end
for i = 3, #KEYS, 2 do
  redis.call('UNLINK', KEYS[i])
  redis.call('RENAME', KEYS[i + 1], KEYS[i])
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
local since = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 1, #since, 3 do
  local held = redis.call('HGET', since[i], since[i + 1])
  if not held or struct.unpack('<d', since[i + 2]) > struct.unpack('<d', held) then
    redis.call('HSET', since[i], since[i + 1], since[i + 2])
    redis.call('EXPIRE', since[i], ARGV[1])
  end
end
redis.call('UNLINK', KEYS[2])
redis.call('SET', KEYS[1], 'complete', 'EX', ARGV[1])
return 1
"""
_FILLING_S: Final = 3600
"""Seconds until the hashes of an aborted rebuild expire."""
_ROWS: Final = 1000
"""Rows per command; Redis serves other clients between commands."""
_COMMANDS: Final = 8
"""Commands sent before reading their results."""


class ElitesCache:
    """Elites of all runs: numbers, fitness and rewards, no programs."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._apply = client.register_script(_APPLY)
        self._swap = client.register_script(_SWAP)

    def read(self, run_id: UUID, island: int, load: Callable[[], Sequence[EliteRow]]) -> list[CachedRow]:
        """Return an island's elites, rebuilding the run's cache from ``load`` if it is incomplete.

        Without Redis, return the result of ``load``.
        """
        rows: list[EliteRow] = []

        def loading() -> list[EliteRow]:
            rows.extend(load())
            return rows

        try:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.get(_marker(run_id))
            pipeline.hgetall(_key(run_id, island))
            marker, packed = pipeline.execute()
            if marker == _COMPLETE:
                return [_unpack(cell, value) for cell, value in packed.items()]
            self.rebuild(run_id, loading)
        except redis.RedisError as error:
            _log.warning("the archive is read from PostgreSQL, Redis does not respond: %s", error)
            rows = list(load())
        return [row for at, row in rows if at == island]

    def apply(self, run_id: UUID, placements: Sequence[Placement]) -> None:
        """Apply accepted updates; cells only accept a higher fitness, so repetitions are harmless."""
        if placements:
            keys = [_marker(run_id), _since(run_id), *(_key(run_id, p.island) for p in placements)]
            values: list[Any] = [_EXPIRY_S]
            for p in placements:
                values += [p.cell, _pack(p.number, p.fitness, p.rewards)]
            self._apply(keys=keys, args=values)

    def rebuild(self, run_id: UUID, load: Callable[[], Iterable[EliteRow]]) -> int:
        """Fill a run's cache from ``load``, which yields every cell once, and return the number of cells."""
        token = os.urandom(8).hex()
        building = f"{_BUILDING}:{token}"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.set(_marker(run_id), building, ex=_EXPIRY_S)
        pipeline.delete(_since(run_id))
        pipeline.execute()
        pipeline = self._redis.pipeline(transaction=False)
        count, filled = 0, dict[str, str]()
        for island, row in _chunks(load()):
            key = _key(run_id, island)
            if key not in filled:
                filled[key] = f"{key}:{token}"
            pipeline.hset(filled[key], items=row)
            pipeline.expire(filled[key], _FILLING_S)
            count += len(row) // 2
            if len(pipeline) >= 2 * _COMMANDS:
                pipeline.execute()
        pipeline.execute()
        # Only if the marker is unchanged: after a FLUSHALL in between, the next reader rebuilds again.
        keys = [_marker(run_id), _since(run_id), *(each for pair in filled.items() for each in pair)]
        self._swap(keys=keys, args=[_EXPIRY_S, building])
        return count

    def forget(self, run_ids: Iterable[UUID]) -> None:
        """Drop the caches of runs; the next reader rebuilds them."""
        keys = [_marker(run_id) for run_id in run_ids]
        if keys:
            self._redis.delete(*keys)

    def is_complete(self, run_id: UUID) -> bool:
        """Return True if a run's cache is complete."""
        return cast("bytes | None", self._redis.get(_marker(run_id))) == _COMPLETE


def _marker(run_id: UUID) -> str:
    return f"speciate:elites:{run_id}"


def _since(run_id: UUID) -> str:
    return f"speciate:elites:{run_id}:since"


def _key(run_id: UUID, island: int) -> str:
    return f"speciate:elites:{run_id}:{island}"


def _pack(number: int, fitness: float, rewards: Sequence[float]) -> bytes:
    return _HEAD.pack(fitness, number) + struct.pack(f"<{len(rewards)}d", *rewards)


def _unpack(cell: bytes, value: bytes) -> CachedRow:
    fitness, number = _HEAD.unpack_from(value)
    count = (len(value) - _HEAD.size) // 8
    return cell.decode(), number, fitness, struct.unpack_from(f"<{count}d", value, _HEAD.size)


def _chunks(rows: Iterable[EliteRow]) -> Iterator[tuple[int, list[str | bytes]]]:
    """Yield islands with cells and packed values of at most ``_ROWS`` rows."""
    filling: dict[int, list[str | bytes]] = {}
    packs: dict[int, Callable[..., bytes]] = {}
    for island, (cell, number, fitness, rewards) in rows:
        pack = packs.get(len(rewards)) or packs.setdefault(len(rewards), struct.Struct(f"<dq{len(rewards)}d").pack)
        filled = filling.setdefault(island, [])
        filled += (cell, pack(fitness, number, *rewards))
        if len(filled) == 2 * _ROWS:
            yield island, filling.pop(island)
    yield from filling.items()
