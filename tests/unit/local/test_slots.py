"""Threads that execute jobs, and the cores that evaluations share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from speciate.local.slots import CoreShares, ThreadSlots
from speciate.ports.interruption import interruptible


def test_jobs_run_in_at_most_as_many_threads_and_an_error_ends_none() -> None:
    slots, names, lock = ThreadSlots("x", 2, nice=0), list[str](), threading.Lock()
    done = threading.Semaphore(0)

    def job() -> None:
        with lock:
            names.append(threading.current_thread().name)
        done.release()
        raise ValueError

    for _ in range(6):
        slots.put(job)
    for _ in range(6):
        assert done.acquire(timeout=10)
    assert len(names) == 6
    assert set(names) <= {"x-1", "x-2"}
    slots.stop()
    assert slots.join(time.monotonic() + 10)


def test_stopped_slots_finish_the_job_in_progress_and_begin_no_other() -> None:
    slots, begun, go_on, later = ThreadSlots("x", 1, nice=0), threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait(10)

    slots.put(job)
    slots.put(later.set)
    assert begun.wait(10)
    slots.stop()
    assert not slots.join(time.monotonic())
    go_on.set()
    assert slots.join(time.monotonic() + 10)
    assert not later.is_set()


def test_an_evaluation_of_several_cores_waits_for_them() -> None:
    shares, taken = CoreShares(2), threading.Event()

    def large() -> None:
        with shares.take(99):  # at most all
            taken.set()

    with ThreadPoolExecutor(1) as pool, shares.take(1):
        waiting = pool.submit(large)
        assert not taken.wait(0.3)
    waiting.result(10)
    assert taken.is_set()


def test_an_interrupted_evaluation_waits_no_longer() -> None:
    shares, lost = CoreShares(1), threading.Event()
    lost.set()
    with shares.take(1), interruptible(lost), shares.take(1):
        pass
    with shares.take(1):  # all cores are free again
        pass
