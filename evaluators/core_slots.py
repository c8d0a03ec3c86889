"""Share the slots of a worker among evaluations of several cores."""

import fcntl
import os
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from speciate.ports.interruption import interrupted

_POLL_S: Final = 0.01


class CoreSlots:
    """Slots of one worker; create it before its processes fork.

    A slot is a byte of an anonymous file that a process locks. The kernel releases the locks of a process that dies.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)

    @contextmanager
    def take(self, cores: int) -> Iterator[int]:
        """Hold as many slots as an evaluation has cores, at most all; wait until they are free.

        While one process collects slots, no other takes any, so that a large evaluation waits for those that run, not
        for those that come. Yields the number of slots: 0 if the evaluation was interrupted while it waited.
        """
        slots: list[int] = []
        try:
            yield self._collect(slots, min(max(cores, 1), self._count))
        finally:
            for slot in slots:
                self._unlock(slot)

    def _collect(self, slots: list[int], count: int) -> int:
        turn = self._count
        while not self._locked(turn):
            if interrupted():
                return 0
            time.sleep(_POLL_S)
        try:
            while True:
                for slot in range(self._count):
                    if len(slots) < count and slot not in slots and self._locked(slot):
                        slots.append(slot)
                if len(slots) == count:
                    return count
                if interrupted():
                    return 0
                time.sleep(_POLL_S)
        finally:
            self._unlock(turn)

    def _locked(self, slot: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot, os.SEEK_SET)
        except OSError:
            return False
        return True

    def _unlock(self, slot: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot, os.SEEK_SET)
