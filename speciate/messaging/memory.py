"""The commands of Redis that Speciate uses, in the memory of one process that is API and worker at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Set
from fnmatch import fnmatchcase
from typing import Any


class MemoryRedis:
    """Stands in for ``redis.Redis``; as there, keys may be text or bytes and values are bytes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its lock is reentrant
        self._values: dict[str, Any] = {}
        self._until: dict[str, float] = {}

    def ping(self) -> bool:
        return True

    def close(self) -> None:
        """Keep nothing open."""

    def publish(self, *_: str) -> int:
        """Do nothing: ``LocalSignals`` wakes the streams."""
        return 0

    def set(self, key: str, value: Any, *, ex: float | None = None, px: float | None = None, nx: bool = False) -> bool:
        with self._changed:
            if nx and self._read(key) is not None:
                return False
            self.delete(key)
            self._values[key] = _bytes(value)
            if ex is not None or px is not None:
                self.expire(key, ex if ex is not None else (px or 0.0) / 1000)
            return True

    def get(self, key: str) -> bytes | None:
        with self._changed:
            value: bytes | None = self._read(key)
            return value

    def getdel(self, key: str) -> bytes | None:
        with self._changed:
            value = self.get(key)
            self.delete(key)
            return value

    def mget(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key.decode()) for key in keys]

    def delete(self, key: str) -> int:
        with self._changed:
            existed = self._present().pop(key, None) is not None
            self._until.pop(key, None)
            return int(existed)

    def expire(self, key: str, seconds: float) -> bool:
        with self._changed:
            if exists := self._read(key) is not None:
                self._until[key] = time.monotonic() + seconds
            return exists

    def pttl(self, key: str) -> int:
        with self._changed:
            if self._read(key) is None:
                return -2
            return round((self._until[key] - time.monotonic()) * 1000) if key in self._until else -1

    def scan_iter(self, match: str, count: int = 0) -> Iterator[bytes]:  # noqa: ARG002
        with self._changed:
            return iter([key.encode() for key, value in self._present().items() if value and fnmatchcase(key, match)])

    def rpush(self, key: str, value: Any) -> int:
        with self._changed:
            values: list[bytes] = self._present().setdefault(key, [])
            values.append(_bytes(value))
            self._changed.notify_all()
            return len(values)

    def blpop(self, keys: list[str], timeout: float) -> tuple[bytes, bytes] | None:
        (key,) = keys
        with self._changed:
            self._changed.wait_for(lambda: self._read(key), timeout)
            values = self._read(key)
            return (key.encode(), values.pop(0)) if values else None

    def sadd(self, key: str, value: Any) -> int:
        with self._changed:
            self._present().setdefault(key, set()).add(_bytes(value))
            return 1

    def smembers(self, key: str) -> Set[bytes]:
        with self._changed:
            return {*(self._read(key) or ())}

    def sismember(self, key: str, value: Any) -> bool:
        return _bytes(value) in self.smembers(key)

    def scard(self, key: str) -> int:
        return len(self.smembers(key))

    def hset(self, key: str, field: str, value: Any) -> int:
        with self._changed:
            self._present().setdefault(key, {})[field.encode()] = _bytes(value)
            return 1

    def hincrbyfloat(self, key: str, field: str, by: float) -> float:
        with self._changed:
            counts: dict[bytes, bytes] = self._present().setdefault(key, {})
            counts[field.encode()] = repr(value := float(counts.get(field.encode(), b"0")) + by).encode()
            return value

    def hdel(self, key: str, field: str) -> int:
        with self._changed:
            return int((self._read(key) or {}).pop(field.encode(), None) is not None)

    def hgetall(self, key: str) -> Mapping[bytes, bytes]:
        with self._changed:
            return {**(self._read(key) or {})}

    def hvals(self, key: str) -> list[bytes]:
        return [*self.hgetall(key).values()]

    def pipeline(self, *, transaction: bool) -> MemoryRedis:  # noqa: ARG002
        """Return this object: commands take effect at once."""
        return self

    def execute(self) -> None:
        """Do nothing; see ``pipeline``."""

    def _read(self, key: str) -> Any:
        return self._present().get(key)

    def _present(self) -> dict[str, Any]:
        """Return the values by key without expired ones; a list or hash that was emptied keeps no expiry."""
        now = time.monotonic()
        for key in [key for key, until in self._until.items() if until < now or self._values[key] in ([], {})]:
            del self._until[key]
            del self._values[key]
        return self._values


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
