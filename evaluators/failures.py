"""Convert the end of a process, or a malformed answer, into a failure value."""

import os
import signal

from evaluators.contained.meter import Exceeded
from evaluators.limits import tasks
from evaluators.session import EndReason, SessionEndedError
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ResourceUsage
from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.limits import Limits

REFUSALS = {
    "raised": FailureKind.CRASHED,
    "syntax_error": FailureKind.CRASHED,
    "out_of_memory": FailureKind.OUT_OF_MEMORY,
    "no_entry_point": FailureKind.INVALID_OUTPUT,
    "build_failed": FailureKind.CRASHED,
    "program_failed": FailureKind.CRASHED,
    "cpu_limit": FailureKind.TIMEOUT,
    "too_long": FailureKind.INVALID_OUTPUT,
    "not_json": FailureKind.INVALID_OUTPUT,
}
"""Failure kind of each reason that a running program reports."""

SUPERVISOR_KILLED = Failure(FailureKind.CRASHED, "supervisor_killed", "the process ended together with its supervisor")

BATCH_DEADLINE = Failure(FailureKind.TIMEOUT, "batch_deadline", "not scored before the batch had to end")

_NEARLY = 0.9


def failure_of(ended: SessionEndedError, usage: ResourceUsage, limits: Limits) -> Failure:
    """Return the failure of a process that ended without an answer, from its supervisor's report."""
    if ended.ending is EndReason.BROKEN:
        return Failure(FailureKind.INVALID_OUTPUT, "malformed_frame", sanitize(ended.detail))
    if ended.ending is EndReason.SPENT:
        return Failure(FailureKind.TIMEOUT, "cpu_limit", ended.detail)
    if usage.exceeded is Exceeded.THREADS:
        most = tasks(limits, processes=False)
        return Failure(FailureKind.CRASHED, "too_many_threads", f"more than {most} threads at a time")
    if usage.exceeded is Exceeded.MEMORY:
        detail = f"more than {limits.memory_bytes >> 20} MiB of resident memory"
        return Failure(FailureKind.OUT_OF_MEMORY, "memory_limit", detail)
    number = _signal_of(usage)
    spent = usage.exceeded is Exceeded.CPU or (number == signal.SIGKILL and usage.cpu_s >= limits.cpu_s)
    if spent or number == signal.SIGXCPU:
        return Failure(FailureKind.TIMEOUT, "cpu_limit", f"used {usage.cpu_s:.1f} s of processor time")
    if ended.ending is EndReason.LATE:
        return Failure(FailureKind.TIMEOUT, "wall_limit", f"no answer within the wall limit of {limits.wall_s:g} s")
    return _death(usage, limits)


def redacted(failure: Failure, detail: str = "") -> Failure:
    """Return the failure of a program that received a secret, without its text and with a coarse reason.

    The program chooses its output length, exit code and signal number, so each could encode the secret.
    """
    killed = failure.reason.startswith("sig")  # of a signal
    return Failure(failure.kind, "killed_by_signal" if killed else failure.reason, detail)


def _death(usage: ResourceUsage, limits: Limits) -> Failure:
    if usage.status is None:
        return SUPERVISOR_KILLED
    if not usage.ended:
        return Failure(FailureKind.CRASHED, "closed_channel", "the process closed the channel for its answers")
    number = _signal_of(usage)
    if number is None:
        code = os.waitstatus_to_exitcode(usage.status)
        return Failure(FailureKind.CRASHED, "exited", f"the process exited with code {code} before it answered")
    if number == signal.SIGKILL and usage.memory_bytes >= _NEARLY * limits.memory_bytes:
        return Failure(FailureKind.OUT_OF_MEMORY, "killed", f"killed at {usage.memory_bytes >> 20} MiB")
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal_{number}"
    return Failure(FailureKind.CRASHED, name.lower(), f"the process was killed by {name}")


def _signal_of(usage: ResourceUsage) -> int | None:
    status = usage.status
    return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
