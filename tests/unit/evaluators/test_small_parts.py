import signal

import pytest

from evaluators.limits import rlimits
from evaluators.session import Ending, SessionEndedError
from evaluators.texts import Tail, clean, short_json
from evaluators.tiers import Usage
from evaluators.verdict import failure_of
from speciate.domain.candidate import FailureKind
from speciate.domain.problem import Limits

LIMITS = Limits(cpu_s=1.5)


def test_fractions_of_processor_seconds_are_rounded_up_and_the_hard_limit_follows():
    assert rlimits(LIMITS)["RLIMIT_CPU"] == (2, 3)
    assert rlimits(LIMITS, cpu=False)["RLIMIT_CPU"] == (-1, -1)


@pytest.mark.parametrize(
    ("ending", "usage", "kind", "reason"),
    [
        (Ending.BROKEN, Usage(signal.SIGKILL, ended=False), FailureKind.INVALID_OUTPUT, "malformed_frame"),
        (Ending.LATE, Usage(signal.SIGKILL, ended=False), FailureKind.TIMEOUT, "wall_limit"),
        (Ending.LATE, Usage(signal.SIGKILL, ended=False, cpu_s=1.6), FailureKind.TIMEOUT, "cpu_limit"),
        (Ending.GONE, Usage(signal.SIGXCPU, ended=True, cpu_s=2.0), FailureKind.TIMEOUT, "cpu_limit"),
        (Ending.GONE, Usage(signal.SIGKILL, ended=True, cpu_s=3.0), FailureKind.TIMEOUT, "cpu_limit"),
        (Ending.GONE, Usage(signal.SIGKILL, ended=True), FailureKind.CRASHED, "sigkill"),
        (Ending.GONE, Usage(signal.SIGKILL, True, 0.1, 760 << 20), FailureKind.OUT_OF_MEMORY, "killed"),
        (Ending.GONE, Usage(signal.SIGSEGV | 0x80, ended=True), FailureKind.CRASHED, "sigsegv"),
        (Ending.GONE, Usage(40, ended=True), FailureKind.CRASHED, "signal_40"),
        (Ending.GONE, Usage(3 << 8, ended=True), FailureKind.CRASHED, "exited"),
        (Ending.GONE, Usage(signal.SIGKILL, ended=False), FailureKind.CRASHED, "closed_channel"),
        (Ending.GONE, Usage(None, ended=False), FailureKind.CRASHED, "supervisor_killed"),
        (Ending.GONE, Usage(signal.SIGKILL, ended=False, exceeded=True), FailureKind.CRASHED, "too_many_threads"),
    ],
)
def test_every_end_has_a_kind_and_a_reason(ending, usage, kind, reason):
    failure = failure_of(SessionEndedError(ending), usage, LIMITS)
    assert (failure.kind, failure.reason) == (kind, reason)


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
    assert clean("a\0b\ud800c") == "a\ufffdb?c"
    assert clean("abcdef", 3) == "def"
    assert clean("abc", 0) == ""
    assert short_json("\ud800") == '"?"'
    assert short_json(list(range(1000)), 10) == "[0, 1, 2,  …"
