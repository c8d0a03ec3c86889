"""Failures as prompts show them: the message with its place in the candidate's own lines, and the frequent ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, Failure
from speciate.domain.files import EVALUATOR
from speciate.domain.problem import Problem
from speciate.prompts.text import bounded, fenced, printable

SHOWN: Final = 4
"""Causes that a prompt lists."""
_MAX_READ_CHARS: Final = 8000
_MAX_CAUSE_CHARS: Final = 300
_MAX_SOURCE_CHARS: Final = 120
_FRAME: Final = re.compile(
    r'^ *File "([^"\n]+)", line ([0-9]{1,9})[^\n]*\n((?: {4}[^\n]*\n)?)(?:[ ~^]*\n|  \[Previous line[^\n]*\n)*',
    re.MULTILINE,
)
_ERROR: Final = re.compile(r"(?i)(?:error|exception)\b")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_LIBRARY: Final = re.compile(r"^<|/lib(?:64)?/python|-packages/")
_REFUSED: Final = "refused"
"""Reason of an answer that the endpoint refused to give."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of a failure, read from its detail. Untrusted text."""

    message: str
    """Message of the exception, or the whole detail if that is no traceback of Python."""
    line: int = 0
    """Number of the candidate's last line in the traceback; 0 without one."""
    source: str = ""
    """That line."""

    @property
    def place(self) -> str:
        source = bounded(self.source, _MAX_SOURCE_CHARS).replace("\n", " ")
        return "" if not self.line else f"at line {self.line}{f': {source}' if source else ''}"


def cause_of(failure: Failure, problem: Problem) -> Cause:
    """Return message and place of a failure, without the frames of the evaluator and of libraries."""
    limits = problem.limits
    # Measured values would differ when the run is replayed.
    within = {
        "cpu_limit": f"used more than {limits.cpu_s:g} s of processor time",
        "killed": f"killed near the limit of {limits.memory_bytes >> 20} MiB",
    }
    detail = within.get(failure.reason) or _ADDRESS.sub("0x…", printable(bounded(failure.detail, _MAX_READ_CHARS)))
    frames = [*_FRAME.finditer(detail)]
    message = detail[frames[-1].end() :].strip() if frames else ""
    if not message:
        return Cause(detail.strip())
    own = [frame for frame in frames if _is_own(frame[1], problem)]
    return Cause(message, int(own[-1][2]), own[-1][3].strip()) if own else Cause(message)


def is_of_program(failure: Failure) -> bool:
    """Return True if another program could avoid the failure: no worker was lost and no endpoint refused to answer."""
    return failure.reason not in NOT_THE_PROGRAMS_FAULT and failure.reason != _REFUSED


def frequent_causes(problem: Problem, failures: Sequence[Failure | None]) -> tuple[str, ...]:
    """Return the most frequent causes of failure in one line each, with their counts; ``failures`` come newest first.

    Failures that are not due to a program are left out. Messages that differ in their numbers count as one.
    """
    counts = Counter[str]()
    newest: dict[str, str] = {}
    for failure in failures:
        if failure is not None and is_of_program(failure):
            line = headline(failure, problem)
            key = _NUMBER.sub("0", line)
            counts[key] += 1
            newest.setdefault(key, line)
    return tuple(
        f"{count} of the last {len(failures)} programs: {newest[key]}" for key, count in counts.most_common(SHOWN)
    )


def causes_text(causes: Sequence[str]) -> str:
    return fenced("\n".join(causes)) if causes else ""


def headline(failure: Failure, problem: Problem) -> str:
    """Return a failure in one line: the exception and its place, or the reason with the line that names the error."""
    cause = cause_of(failure, problem)
    lines = [line.strip() for line in cause.message.splitlines() if any(map(str.isalnum, line))]
    line = next((line for line in lines if _ERROR.search(line)), next(iter(lines), ""))
    reason = printable(failure.reason).replace("\n", " ") or failure.kind.value
    head = line if line and (cause.line or failure.reason == "raised") else ": ".join(filter(None, (reason, line)))
    return ", ".join(filter(None, (bounded(head, _MAX_CAUSE_CHARS).replace("\n", " "), cause.place)))


def _is_own(file: str, problem: Problem) -> bool:
    name = file.rpartition("/")[2]
    return not _LIBRARY.search(file) and name not in {EVALUATOR, *problem.files}
