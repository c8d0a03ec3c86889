"""Evaluations of several cores take as many slots of their worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import pytest

from evaluators.core_slots import CoreSlots
from speciate.ports.interruption import interruptible

FORK = multiprocessing.get_context("fork")
COUNT = 3


def _work(slots: CoreSlots, cores: int, used: Any, most: Any) -> None:
    for _ in range(5):
        with slots.take(cores) as taken:
            with used.get_lock():
                used.value += taken
                most.value = max(most.value, used.value)
            time.sleep(0.005)
            with used.get_lock():
                used.value -= taken


def test_processes_never_hold_more_slots_than_there_are_and_none_starves() -> None:
    slots, used, most = CoreSlots(COUNT), FORK.Value("i", 0), FORK.Value("i", 0)
    processes = [FORK.Process(target=_work, args=(slots, cores, used, most)) for cores in (1, 1, 2, 3, 8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert (used.value, most.value) == (0, COUNT)


def _hold(slots: CoreSlots, ready: Any) -> None:
    with slots.take(COUNT):
        ready.set()
        time.sleep(60)


def test_a_killed_process_leaves_its_slots_and_an_interrupted_one_stops_waiting() -> None:
    slots, ready = CoreSlots(COUNT), FORK.Event()
    holder = FORK.Process(target=_hold, args=(slots, ready))
    holder.start()
    assert ready.wait(30)
    lost = threading.Event()
    threading.Timer(0.05, lost.set).start()
    with interruptible(lost), slots.take(1) as taken:
        assert taken == 0
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(30)
    with slots.take(2) as taken:
        assert taken == 2


def test_slots_need_no_file_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    slots = CoreSlots(COUNT)
    with slots.take(2) as taken:
        assert taken == 2
