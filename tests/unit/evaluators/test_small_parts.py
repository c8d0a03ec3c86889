import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from evaluators.candidate_process import CallResult
from evaluators.contained.meter import Exceeded
from evaluators.contained.unsafe import orphaned_folders
from evaluators.failures import failure_of
from evaluators.limits import rlimits
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.session import EndReason, SessionEndedError, TimeAllowance
from evaluators.text import Tail, sanitize, short_json
from evaluators.tiers.sandbox import ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.candidate import FailureKind
from speciate.domain.limits import Limits

LIMITS = Limits(cpu_s=1.5)


def test_fractions_of_processor_seconds_are_rounded_up_and_the_hard_limit_follows():
    assert rlimits(LIMITS)["RLIMIT_CPU"] == (2, 3)
    # Ticks are up to a tenth off: a program that stops at the end of its processor time is not ended.
    assert rlimits(LIMITS.model_copy(update={"cpu_s": 60.0}))["RLIMIT_CPU"] == (75, 76)
    assert rlimits(LIMITS, cpu=False)["RLIMIT_CPU"] == (-1, -1)


@pytest.mark.parametrize(
    ("ending", "usage", "kind", "reason"),
    [
        (EndReason.BROKEN, ResourceUsage(signal.SIGKILL, ended=False), FailureKind.INVALID_OUTPUT, "malformed_frame"),
        (EndReason.LATE, ResourceUsage(signal.SIGKILL, ended=False), FailureKind.TIMEOUT, "wall_limit"),
        (EndReason.LATE, ResourceUsage(signal.SIGKILL, ended=False, cpu_s=1.6), FailureKind.TIMEOUT, "cpu_limit"),
        (EndReason.GONE, ResourceUsage(signal.SIGXCPU, ended=True, cpu_s=2.0), FailureKind.TIMEOUT, "cpu_limit"),
        (EndReason.GONE, ResourceUsage(signal.SIGKILL, ended=True, cpu_s=3.0), FailureKind.TIMEOUT, "cpu_limit"),
        (EndReason.GONE, ResourceUsage(signal.SIGKILL, ended=True), FailureKind.CRASHED, "sigkill"),
        (EndReason.GONE, ResourceUsage(signal.SIGKILL, True, 0.1, 760 << 20), FailureKind.OUT_OF_MEMORY, "killed"),
        (EndReason.GONE, ResourceUsage(signal.SIGSEGV | 0x80, ended=True), FailureKind.CRASHED, "sigsegv"),
        (EndReason.GONE, ResourceUsage(40, ended=True), FailureKind.CRASHED, "signal_40"),
        (EndReason.GONE, ResourceUsage(3 << 8, ended=True), FailureKind.CRASHED, "exited"),
        (EndReason.GONE, ResourceUsage(signal.SIGKILL, ended=False), FailureKind.CRASHED, "closed_channel"),
        (EndReason.GONE, ResourceUsage(None, ended=False), FailureKind.CRASHED, "supervisor_killed"),
        (
            EndReason.GONE,
            ResourceUsage(signal.SIGKILL, ended=False, exceeded=Exceeded.THREADS),
            FailureKind.CRASHED,
            "too_many_threads",
        ),
        (
            EndReason.GONE,
            ResourceUsage(signal.SIGKILL, ended=False, exceeded=Exceeded.MEMORY),
            FailureKind.OUT_OF_MEMORY,
            "memory_limit",
        ),
    ],
)
def test_every_end_has_a_kind_and_a_reason(ending, usage, kind, reason):
    failure = failure_of(SessionEndedError(ending), usage, LIMITS)
    assert (failure.kind, failure.reason) == (kind, reason)


class Waiter:
    """A process that has waited as long as a test says."""

    def __init__(self):
        self.waiting, self.waited, self.others = self, 3.0, 0.0
        self.ran, self.own_ran_s, self.cores = 50.0, 50.0, 1

    def own_s(self):
        return self.waited

    def others_s(self):
        return self.others

    def ran_s(self):
        return self.ran


@pytest.fixture
def clock(monkeypatch):
    times = SimpleNamespace(now=100.0)
    monkeypatch.setattr("evaluators.session.time", SimpleNamespace(monotonic=lambda: times.now))
    return times


def test_time_in_which_a_process_waits_for_a_processor_is_not_its_own(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf)
    assert allowance.left_s() == 2.0
    clock.now, process.waited = 101.5, 4.0
    assert allowance.left_s() == 0.5  # there is time to find out
    assert allowance.used_s == 0.5
    clock.now = 102.5
    assert allowance.left_s() == 0.5
    clock.now = 103.0
    assert allowance.left_s() == 0.0
    process.waited = 4.25
    assert allowance.left_s() == 0.25
    allowance.paused_s += 1.0
    assert allowance.left_s() == 1.25


def test_what_crowds_itself_was_not_kept_waiting_by_others(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf)
    clock.now, process.waited, process.ran = 102.0, 4.5, 50.5
    assert allowance.left_s() == 1.5
    clock.now, process.waited, process.ran = 104.0, 6.0, 54.0
    assert allowance.left_s() == -0.5
    process = Waiter()
    process.cores = 4
    allowance = TimeAllowance(process, 2.0, math.inf)
    clock.now, process.waited, process.ran = 107.0, 5.0, 54.0  # a quarter of the time on its four processors
    assert allowance.left_s() == 1.0


def test_processor_time_of_all_together_has_an_end(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf, 4.0)
    clock.now, process.ran = 101.0, 53.0
    assert allowance.left_s() == 1.0
    clock.now, process.ran = 101.6, 57.0
    with pytest.raises(SessionEndedError, match=r"4\.0 s of processor time") as ended:
        allowance.left_s()
    assert failure_of(ended.value, ResourceUsage(None, ended=False), LIMITS).reason == "cpu_limit"


def test_waiting_has_an_end(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf)
    clock.now, process.waited = 119.0, 23.0
    assert allowance.left_s() == 1.0
    clock.now, process.waited = 120.0, 24.0
    assert allowance.left_s() == 0.0
    bounded = TimeAllowance(process, 2.0, clock.now + 1.0)
    assert bounded.left_s() == 1.0
    clock.now, process.waited = 121.0, 25.0
    assert bounded.left_s() == 0.0


def test_what_is_waited_for_may_have_waited_before(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf)
    clock.now, process.others = 102.5, 9.0
    assert allowance.left_s() == 2.0


def test_what_was_granted_is_not_charged_afterwards(clock):
    process = Waiter()
    allowance = TimeAllowance(process, 2.0, math.inf)
    clock.now, process.others = 102.5, 1.5
    assert allowance.left_s() == 1.0
    process.others = 0.0  # it has ended
    assert allowance.left_s() == 1.0
    assert allowance.used_s == 1.0
    process.waited = 5.0  # its own, of which more is known now
    assert allowance.used_s == 0.5


class Slow:
    """A callee that answers after three seconds, most of them waited."""

    def __init__(self, clock):
        self._clock, self.process = clock, Waiter()
        self.session = SimpleNamespace(allow=partial(TimeAllowance, self.process))

    def load(self, deadline):
        return None

    def ask(self, index, name, args):
        self._index = index

    def answer(self, allowance):
        self._clock.now += 3.0
        self.process.waited += 2.99
        if allowance.left_s() <= 0:
            raise SessionEndedError(EndReason.LATE)
        return CallResult(self._index, value=1)

    def end(self):
        return ResourceUsage(None, ended=False), {}


def test_waiting_has_an_end_over_all_calls_of_a_script(clock, monkeypatch):
    monkeypatch.setattr("evaluators.restarting_candidate.time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr("evaluators.restarting_candidate.CandidateProcess", lambda *_: Slow(clock))
    starter = SimpleNamespace(take=lambda: None, overlap=lambda: None)
    problem = SimpleNamespace(limits=Limits(wall_s=2), language=None)
    batch = SimpleNamespace(problem=problem, deadline=math.inf, expired=False)
    with RestartingCandidate(batch, starter, "", 0) as subject:
        failures = [subject.call("f", [], None).failure for _ in range(8)]
    assert failures[:6] == [None] * 6
    assert failures[6] is not None
    assert failures[6].reason == failures[7].reason == "wall_limit"


def test_what_the_kernel_does_not_tell_is_no_waiting():
    for pid in (0, 2**22 + 1):  # no process has such a number
        waiting = SchedulingDelay(pid)
        assert (waiting.own_s(), waiting.others_s(), waiting.ran_s()) == (0.0, 0.0, 0.0)
        waiting.close()


THREAD = """
import threading, time
def burn():
    while time.thread_time() < 60: pass
threading.Thread(target=burn).start()
threading.Event().wait()
"""
CROWD = """
import os, subprocess, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for _ in range(4):
    subprocess.Popen([sys.executable, "-c", "while True: pass"])
time.sleep(60)
"""


@contextmanager
def watched(code: str) -> Iterator[SchedulingDelay]:
    """Watch a process as the worker does."""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    waiting = SchedulingDelay(process.pid)
    try:
        yield waiting
    finally:
        waiting.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(true: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_work_and_the_waits_of_threads_count():
    with watched(THREAD) as waiting:
        until(lambda: waiting.ran_s() >= 0.5 and waiting.others_s() > 0.0)
        assert waiting.own_s() < waiting.others_s()


def test_the_work_and_the_waits_of_children_count():
    with watched(CROWD) as waiting:
        until(lambda: waiting.others_s() >= 0.2 and waiting.ran_s() >= 0.5)
        waiting.own_s()
        assert waiting.own_ran_s < 0.4


def test_a_tail_keeps_the_end_and_forgets_what_was_taken():
    tail = Tail(5)
    tail.feed(b"abc")
    tail.feed(b"defg")
    assert tail.take() == "cdefg"
    assert tail.take() == ""
    nothing = Tail(0)
    nothing.feed(b"abc")
    assert nothing.take() == ""


def test_texts_are_safe_for_a_database():
    assert sanitize("a\0b\ud800c") == "a\ufffdb?c"
    assert sanitize("abcdef", 3) == "def"
    assert sanitize("abc", 0) == ""
    assert short_json("\ud800") == '"?"'
    assert short_json(list(range(1000)), 10) == "[0, 1, 2,  …"


def test_only_folders_of_ones_own_dead_are_left_to_remove(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    mine, alive, elsewhere = (tmp_path / f"speciate-eval-7-{pid}-x" for pid in (dead.pid, os.getpid(), 1 << 30))
    mine.mkdir()
    alive.mkdir()
    elsewhere.symlink_to(alive)
    (tmp_path / f"speciate-eval-77-{dead.pid}-x").mkdir()  # another zygote's
    assert orphaned_folders(7) == [str(mine)]
