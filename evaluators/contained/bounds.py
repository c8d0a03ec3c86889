"""Limits of a contained process: those that the kernel enforces, and those that its supervisor checks."""

from __future__ import annotations

import math
import resource

from .meter import STACK_BYTES, Exceeded, Footprint, Meter
from .requests import SpawnRequest

RLimits = tuple[tuple[int, tuple[int, int]], ...]
"""Resources with their soft and hard limits."""

_SPARE_SPACE = 64 << 30  # libraries reserve address space that they do not use; page tables of this much are small


def cpu_rlimit(cpu_s: float) -> tuple[int, int]:
    """Return soft and hard ``RLIMIT_CPU``; ticks are up to a tenth off, and a program may use all of its time."""
    seconds = math.ceil(1.25 * cpu_s)
    return seconds, seconds + 1


class Bounds:
    """Limits of one kind of process: ``rlimits`` are kept by the kernel, the others by the supervisor.

    A program does not pay for ``warm``, the zygote's memory; ``threads`` are counted if the kernel does not limit them.
    """

    def __init__(self, order: SpawnRequest, warm: Footprint, meter: Meter, *, threads: bool) -> None:
        data = warm.data + order.memory_bytes + order.tasks * STACK_BYTES
        space = warm.space + order.memory_bytes + _SPARE_SPACE
        limits = {**order.rlimits, "RLIMIT_DATA": (data, data), "RLIMIT_AS": (space, space)}
        self.rlimits: RLimits = tuple(
            (which := getattr(resource, name), (lowered(which, soft), lowered(which, hard)))
            for name, (soft, hard) in limits.items()
        )
        self._meter = meter
        self._threads = order.tasks if threads else None
        self._resident = warm.resident + order.memory_bytes
        self._cpu_s = order.cpu_s

    @property
    def seen(self) -> tuple[float, int]:
        """CPU time in seconds and memory in KiB that it has seen processes use; no memory if one process ran alone."""
        return self._meter.ran_s, self._meter.resident >> 10

    def watched(self, *, memory: bool) -> bool:
        return memory or self._threads is not None or self._cpu_s > 0

    def exceeded(self, *, memory: bool) -> Exceeded:
        """Return the limit that the process exceeds; ``memory`` is False if a control group limits its memory."""
        if self._threads is not None and self._meter.threads() > self._threads:
            return Exceeded.THREADS
        self._meter.look()
        if 0 < self._cpu_s <= self._meter.ran_s:
            return Exceeded.CPU
        if memory and self._meter.holds_more(self._resident):
            return Exceeded.MEMORY
        return Exceeded.NOTHING


def lowered(which: int, limit: int) -> int:
    """Return a limit of a resource, or the hard limit of this process if that is lower."""
    ceiling = resource.getrlimit(which)[1]
    return limit if ceiling == resource.RLIM_INFINITY else min(limit, ceiling)
