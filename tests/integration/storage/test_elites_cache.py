"""The cached archive equals PostgreSQL after losses and for any order of updates."""

from __future__ import annotations

from typing import cast
from uuid import UUID, uuid4

import pytest
import redis

from speciate.search.strategy import Placement
from speciate.storage.candidates.elites_cache import CachedRow, ElitesCache
from speciate.storage.candidates.population import EliteRow

pytestmark = pytest.mark.servers


@pytest.fixture
def cache(redis_url: str) -> ElitesCache:
    return ElitesCache(redis.Redis.from_url(redis_url))


def _rows(*rows: tuple[str, int, float]) -> list[EliteRow]:
    return [(0, (cell, number, fitness, (fitness, -fitness))) for cell, number, fitness in rows]


def _place(cell: str, number: int, fitness: float) -> Placement:
    return Placement(number, 0, cell, fitness, (fitness, -fitness))


def _read(cache: ElitesCache, run_id: UUID, stored: list[EliteRow]) -> list[CachedRow]:
    return sorted(cache.read(run_id, 0, lambda: stored))


def test_the_cache_is_filled_on_first_use_and_then_read_without_the_database(cache: ElitesCache) -> None:
    run_id = uuid4()
    stored = _rows(("w0", 1, 0.25), ("w1", 2, 0.5))
    assert _read(cache, run_id, stored) == [row for _, row in stored]
    assert cache.is_complete(run_id)
    assert _read(cache, run_id, []) == [row for _, row in stored]


def test_updates_never_lower_the_fitness_of_a_cell(cache: ElitesCache) -> None:
    run_id = uuid4()
    _read(cache, run_id, _rows(("w0", 1, 0.25)))
    cache.apply(run_id, [_place("w0", 3, 0.75), _place("w1", 3, 0.1)])
    cache.apply(run_id, [_place("w0", 2, 0.5)])
    assert [(c, n, f) for c, n, f, _ in _read(cache, run_id, [])] == [("w0", 3, 0.75), ("w1", 3, 0.1)]


def test_negative_and_tiny_fitness_is_compared_as_numbers(cache: ElitesCache) -> None:
    run_id = uuid4()
    _read(cache, run_id, _rows(("w0", 1, -3.0)))
    cache.apply(run_id, [_place("w0", 2, -2.0)])
    cache.apply(run_id, [_place("w0", 3, -10.0)])
    cache.apply(run_id, [_place("w0", 4, -1e-12)])
    assert [(n, f) for _, n, f, _ in _read(cache, run_id, [])] == [(4, -1e-12)]


def test_updates_of_an_incomplete_cache_are_left_to_the_rebuild(cache: ElitesCache) -> None:
    run_id = uuid4()
    cache.apply(run_id, [_place("w0", 9, 0.9)])
    assert not cache.is_complete(run_id)
    assert [n for _, n, _, _ in _read(cache, run_id, _rows(("w0", 1, 0.1)))] == [1]


def test_a_commit_during_the_rebuild_is_not_lost(cache: ElitesCache) -> None:
    run_id = uuid4()

    def load() -> list[EliteRow]:
        # Another worker commits after the rebuild read the database, and applies its update at once.
        stored = _rows(("w0", 1, 0.1))
        cache.apply(run_id, [_place("w0", 2, 0.2)])
        return stored

    cache.rebuild(run_id, load)
    assert [n for _, n, _, _ in _read(cache, run_id, [])] == [2]


def test_a_rebuild_replaces_the_cache_and_leaves_no_other_keys(cache: ElitesCache) -> None:
    run_id = uuid4()
    many = [(i % 3, (f"c{i}", i, i / 10, (i / 10,))) for i in range(5000)]
    cache.apply(run_id, [_place("w0", 1, 0.5)])  # not built yet
    assert cache.rebuild(run_id, lambda: iter(many)) == 5000
    assert sorted(cache.read(run_id, 1, list)) == sorted(row for island, row in many if island == 1)
    # A rebuild drops cells that PostgreSQL does not have.
    assert cache.rebuild(run_id, lambda: many[:4]) == 4
    assert cache.read(run_id, 1, list) == [many[1][1]]
    assert len(cast("list[bytes]", cache._redis.keys(f"speciate:elites:{run_id}*"))) == 1 + 3


def test_the_later_of_two_concurrent_rebuilds_wins(cache: ElitesCache) -> None:
    run_id = uuid4()

    def load() -> list[EliteRow]:
        # While this rebuild reads, another starts, followed by a commit that this one has not read.
        def later() -> list[EliteRow]:
            cache.apply(run_id, [_place("w1", 3, 0.3)])
            return _rows(("w0", 2, 0.2))

        cache.rebuild(run_id, later)
        return _rows(("w0", 1, 0.1))

    assert cache.rebuild(run_id, load) == 1
    assert [(c, n) for c, n, _, _ in _read(cache, run_id, [])] == [("w0", 2), ("w1", 3)]
    assert len(cast("list[bytes]", cache._redis.keys(f"speciate:elites:{run_id}*"))) == 2


def test_a_flushed_cache_is_filled_again(cache: ElitesCache) -> None:
    run_id = uuid4()
    _read(cache, run_id, _rows(("w0", 1, 0.1)))
    cache._redis.flushall()
    cache.apply(run_id, [_place("w0", 2, 0.2)])
    assert [n for _, n, _, _ in _read(cache, run_id, _rows(("w0", 2, 0.2), ("w1", 1, 0.1)))] == [2, 1]


def test_without_redis_the_archive_is_read_from_the_database() -> None:
    nowhere = ElitesCache(redis.Redis(unix_socket_path="/nonexistent/valkey.sock"))
    assert _read(nowhere, uuid4(), _rows(("w0", 1, 0.1))) == [("w0", 1, 0.1, (0.1, -0.1))]
