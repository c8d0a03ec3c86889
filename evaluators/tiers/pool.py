"""Pool of a tier's zygotes: one per set of packages, preloaded modules and cores, started on first use."""

import os
import sys
import threading
import weakref
from collections import OrderedDict
from functools import partial
from pathlib import Path

from evaluators.tiers.folders import ProblemFolders
from evaluators.tiers.sandbox import ProcessSpec, ProcessSupervisor
from evaluators.tiers.zygote import Zygote
from speciate.domain.errors import EvaluatorUnavailableError

MAX_ZYGOTES = 4
"""Limit on idle zygotes."""

Key = tuple[tuple[str, ...], bool, Path | None, int]


class ZygotePool:
    """Start supervisors of one tier; a ``Sandbox``. After a fork the child starts zygotes of its own."""

    def __init__(self, tier: str, toolchains: tuple[str, ...] = ()) -> None:
        self.name, self._toolchains = tier, toolchains
        self.folders = ProblemFolders()
        self._lock = threading.Lock()
        self._zygotes: OrderedDict[Key, Zygote] = OrderedDict()
        self._starting: weakref.WeakValueDictionary[Key, threading.Lock] = weakref.WeakValueDictionary()
        _POOLS.add(self)

    def start(self, needs: ProcessSpec) -> ProcessSupervisor:
        """Start a supervisor without waiting for it; ``ConnectionError`` if its zygote was killed: try again."""
        zygote = self._take(needs)
        try:
            return zygote.start(needs, partial(self._give_back, zygote))
        except BaseException as error:
            self._give_back(zygote)
            if isinstance(error, ConnectionError):
                self._drop(zygote)  # its socket closes a moment before its exit is visible
            raise

    def close(self) -> None:
        with self._lock:
            zygotes = [*self._zygotes.values()]
            self._zygotes.clear()
        for zygote in zygotes:
            zygote.close()
        self.folders.close()

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [zygote.pid for zygote in self._zygotes.values()]

    def _take(self, needs: ProcessSpec) -> Zygote:
        """Return a zygote that stays open until ``_give_back``."""
        key = needs.preload, needs.folder is not None, needs.site, needs.limits.cores
        with self._lock:
            starting = self._starting.setdefault(key, threading.Lock())
        with starting:  # held during a start: only requests for the same zygote wait
            if (zygote := self._find(key)) is not None:
                return zygote
            folders = self.folders.root if needs.folder else None
            zygote = Zygote(self.name, needs.preload, folders, needs.site, needs.limits.cores, self._toolchains)
            if zygote.missing:
                zygote.close()
                name, reason = next(iter(zygote.missing.items()))
                raise EvaluatorUnavailableError(
                    f"The problem preloads {name!r}, which cannot be imported: {reason}.",
                    remedy=f"Install it for {sys.executable}, or correct `preload`."
                    if needs.site is None
                    else "Add its package to `requirements`, or correct `preload`.",
                )
            with self._lock:
                zygote.users += 1
                self._zygotes[key] = zygote
                # Closing a zygote would also end the processes that run in it.
                idle = [key for key, each in self._zygotes.items() if not each.users]
                surplus = [self._zygotes.pop(key) for key in idle[: max(len(self._zygotes) - MAX_ZYGOTES, 0)]]
        for old in surplus:
            old.close()
        return zygote

    def _find(self, key: Key) -> Zygote | None:
        with self._lock:
            zygote = self._zygotes.get(key)
            if zygote is None:
                return None
            if not zygote.alive:
                self._zygotes.pop(key).close()
                return None
            zygote.users += 1
            self._zygotes.move_to_end(key)
            return zygote

    def _give_back(self, zygote: Zygote) -> None:
        with self._lock:
            zygote.users -= 1

    def _drop(self, zygote: Zygote) -> None:
        with self._lock:
            self._zygotes = OrderedDict((key, each) for key, each in self._zygotes.items() if each is not zygote)
        zygote.close()

    def _forget(self) -> None:
        zygotes, self._zygotes = self._zygotes, OrderedDict()
        self._lock, self._starting = threading.Lock(), weakref.WeakValueDictionary()
        self.folders = ProblemFolders()
        for zygote in zygotes.values():
            zygote.forget()


_POOLS: weakref.WeakSet[ZygotePool] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [*map(ZygotePool._forget, _POOLS)])
