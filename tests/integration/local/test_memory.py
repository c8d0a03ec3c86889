"""What stands in for Redis in one process answers as Valkey does."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import redis

from speciate.messaging.memory import MemoryRedis

pytestmark = pytest.mark.servers


@pytest.fixture(params=["valkey", "memory"])
def client(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryRedis()
    return redis.Redis.from_url(request.getfixturevalue("redis_url"))


def test_values_expire(client: Any) -> None:
    assert client.set("a", "1", ex=60)
    assert not client.set("a", "2", nx=True, ex=60)
    assert client.set("b", b"2", px=50)
    assert client.mget([b"a", b"b"]) == [b"1", b"2"]
    assert 0 < client.pttl("b") <= 50
    time.sleep(0.1)
    assert (client.get("b"), client.pttl("b")) == (None, -2)
    assert (client.getdel("a"), client.getdel("a")) == (b"1", None)


def test_what_has_expired_or_was_deleted_leaves_nothing_behind(client: Any) -> None:
    short_s = 0.05 if isinstance(client, MemoryRedis) else 1
    for key in ("written", "expiring", "deleted"):
        client.hset(key, "old", "1")
        client.expire(key, short_s)
    time.sleep(1.1 * short_s)
    client.hset("written", "new", "2")
    assert (client.hgetall("written"), client.pttl("written")) == ({b"new": b"2"}, -1)
    assert (client.expire("expiring", 60), client.delete("deleted")) == (0, 0)
    client.hset("hash", "n", "1")
    client.expire("hash", 60)
    client.delete("hash")
    client.hincrbyfloat("hash", "n", 1)
    assert client.pttl("hash") == -1
    for key, write, take in (
        ("hash", lambda: client.hset("hash", "n", 1), lambda: client.hdel("hash", "n")),
        ("list", lambda: client.rpush("list", 1), lambda: client.blpop(["list"], timeout=1)),
    ):
        write()
        client.expire(key, 60)
        take()
        write()
        assert client.pttl(key) == -1


def test_expired_values_do_not_stay_in_memory() -> None:
    memory = MemoryRedis()
    memory.set("old", "1", px=1)
    time.sleep(0.01)
    memory.get("other")
    assert not memory._values


def test_keys_are_found_by_pattern(client: Any) -> None:
    for key in ("worker:one", "worker:two", "other"):
        client.set(key, "x")
    assert sorted(client.scan_iter(match="worker:*", count=10)) == [b"worker:one", b"worker:two"]
    client.delete("worker:one")
    assert [*client.scan_iter(match="worker:*", count=10)] == [b"worker:two"]


def test_a_list_wakes_its_reader(client: Any) -> None:
    assert client.blpop(["list"], timeout=1) is None
    threading.Timer(0.1, lambda: client.rpush("list", "late")).start()
    assert client.blpop(["list"], timeout=20) == (b"list", b"late")


def test_sets_and_hashes(client: Any) -> None:
    client.sadd("set", "x")
    assert (client.smembers("set"), client.scard("set")) == ({b"x"}, 1)
    assert (client.sismember("set", "x"), client.sismember("set", "y"), client.scard("none")) == (1, 0, 0)
    pipeline = client.pipeline(transaction=True)
    pipeline.hincrbyfloat("hash", "n", 1.5)
    pipeline.hincrbyfloat("hash", "n", 2)
    pipeline.hset("hash", "text", "t")
    pipeline.expire("hash", 60)
    pipeline.execute()
    assert client.hgetall("hash") == {b"n": b"3.5", b"text": b"t"}
    assert client.hdel("hash", "n") == 1
    assert client.hvals("hash") == [b"t"]
