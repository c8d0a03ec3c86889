"""Failures as prompts show them: the message with its place in the candidate's own lines, and the frequent ones."""

import builtins
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import EVALUATOR_PREFIX, Failure, FailureKind
from speciate.domain.files import EVALUATOR
from speciate.domain.problem import Problem
from speciate.prompts.evolve_blocks import blocks_or_none, contents_of, place_in
from speciate.prompts.python_source import defined_names
from speciate.prompts.rejection import Reason
from speciate.prompts.text import bounded, fenced, printable

SHOWN: Final = 4
"""Causes that a prompt lists."""
_MAX_READ_CHARS: Final = 8000
_MAX_CAUSE_CHARS: Final = 200
_MAX_SOURCE_CHARS: Final = 120
_FRAME: Final = re.compile(
    r'^ *File "([^"\n]+)", line ([0-9]{1,9})[^\n]*\n((?: {4}[^\n]*\n)?)(?:[ ~^]*\n|  \[Previous line[^\n]*\n)*',
    re.MULTILINE,
)
_ERROR: Final = re.compile(r"(?i)(?:error|exception)\b")
_EXCEPTION: Final = re.compile(r"(?:[A-Za-z_]\w{0,40}\.){0,4}([A-Za-z_]\w{0,60})(?::|$)", re.ASCII | re.MULTILINE)
_UNDEFINED: Final = re.compile(r"NameError: name '(\w+)' is not defined")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_LIBRARY: Final = re.compile(r"^<|/lib(?:64)?/python|-packages/")
_RAISED: Final = frozenset({"raised", f"{EVALUATOR_PREFIX}raised"})
"""Reasons that tell less than the exception."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of a failure, read from its detail. Untrusted text."""

    message: str
    """Message of the exception, or the whole detail if that is no traceback of Python."""
    where: str = ""
    """The candidate's last line in the traceback, such as "line 5" or "line 7 of your block"; empty without one."""
    source: str = ""
    """That line."""

    @property
    def place(self) -> str:
        source = bounded(self.source, _MAX_SOURCE_CHARS).replace("\n", " ")
        return f"at {self.where}{f': {source}' if source else ''}" if self.where else ""

    @property
    def summary(self) -> str:
        """The exception, by name if it is built-in, and its place, without text that a candidate chose; or empty."""
        name = _EXCEPTION.match(self.message)
        kind = getattr(builtins, name[1], None) if name else None
        known = name and isinstance(kind, type) and issubclass(kind, BaseException)
        return f"{name[1] if known else 'an exception'}, {self.where}" if name and self.where else ""


def cause_of(failure: Failure, problem: Problem, program: str = "") -> Cause:
    """Return message and place of a failure, without the frames of the evaluator and of libraries.

    With the ``program`` the place is the last frame within its EVOLVE-BLOCKs, whose lines count from 1, if it has any.
    """
    limits = problem.limits
    # Measured values would differ when the run is replayed.
    within = {
        "cpu_limit": f"used more than {limits.cpu_s:g} s of processor time",
        "killed": f"killed near the limit of {limits.memory_bytes >> 20} MiB",
        "evaluator_cpu_limit": "the evaluator's process used more processor time than it may",
        "evaluator_killed": "the evaluator's process was killed near its limit of memory",
    }
    detail = within.get(failure.reason) or _ADDRESS.sub("0x…", printable(bounded(failure.detail, _MAX_READ_CHARS)))
    frames = [*_FRAME.finditer(detail)]
    message = detail[frames[-1].end() :].strip() if frames else ""
    if not message:
        return Cause(detail.strip())
    author_files = {EVALUATOR, *problem.files, *problem.data_files} - problem.files_in(problem.seed_program).keys()
    others = {name.rpartition("/")[2] for name in author_files}
    own = [frame for frame in frames if not _LIBRARY.search(frame[1]) and frame[1].rpartition("/")[2] not in others]
    if not own:
        return Cause(message)
    blocks = () if problem.many_files else blocks_or_none(program)
    for frame in reversed(own):
        if blocks and (place := place_in(blocks, int(frame[2]))):
            return Cause(message, place, frame[3].strip())
    file = f" of {own[-1][1].rpartition('/')[2]}" * problem.many_files
    where = "a line of the fixed text" if blocks else f"line {int(own[-1][2])}{file}"
    seed = problem.seed_program
    if (lacking := _UNDEFINED.match(message)) and lacking[1] in defined_names(
        "".join(contents_of(seed, blocks_or_none(seed)))
    ):
        where = f"the fixed text, which calls {lacking[1]}(…): your block must define it"
    return Cause(message, where, own[-1][3].strip())


def note_text(text: str, problem: Problem, program: str) -> str:
    """Return a note of an evaluator; of one that is a traceback, the message and its place in the program."""
    if not text.startswith("Traceback (most recent call last):"):
        return text
    cause = cause_of(Failure(FailureKind.CRASHED, "raised", text), problem, program)
    return "\n".join(filter(None, (cause.message, cause.place)))


def is_of_program(failure: Failure) -> bool:
    """Return True if another program could avoid the failure: no worker was lost and no endpoint refused to answer."""
    return not failure.lost and failure.reason != Reason.REFUSED


def frequent_causes(
    problem: Problem,
    failures: Sequence[Failure | None],
    program_of: Callable[[int], str] = lambda _: "",
    told: Collection[int] = (),
) -> tuple[str, ...]:
    """Return the most frequent causes of failure in one line each, with their counts; ``failures`` come newest first.

    Failures that are not due to a program are left out. Messages that differ in their numbers count as one.
    ``program_of`` returns the program of the i-th failure, whose lines count within its EVOLVE-BLOCKs. Causes whose
    newest failure is ``told``, by position, are left out.
    """
    counts = Counter[str]()
    newest: dict[str, tuple[int, Failure]] = {}
    for i, failure in enumerate(failures):
        if failure is not None and is_of_program(failure):
            key = _NUMBER.sub("0", headline(failure, problem))
            counts[key] += 1
            newest.setdefault(key, (i, failure))
    frequent = [(count, *newest[key]) for key, count in counts.most_common() if newest[key][0] not in told][:SHOWN]
    lines = ((count, headline(failure, problem, program_of(i))) for count, i, failure in frequent)
    return tuple(f"{count} of the last {len(failures)} programs: {line}" for count, line in lines)


def lines_text(lines: Sequence[str]) -> str:
    return fenced("\n".join(lines)) if lines else ""


def headline(failure: Failure, problem: Problem, program: str = "") -> str:
    """Return a failure in one line: the exception and its place, or the reason with the line that names the error."""
    cause = cause_of(failure, problem, program)
    lines = [line.strip() for line in cause.message.splitlines() if any(map(str.isalnum, line))]
    line = next((line for line in lines if _ERROR.search(line)), next(iter(lines), ""))
    reason = printable(failure.reason).replace("\n", " ") or failure.kind.value
    head = line if line and (cause.where or failure.reason in _RAISED) else ": ".join(filter(None, (reason, line)))
    return ", ".join(filter(None, (bounded(head, _MAX_CAUSE_CHARS).replace("\n", " "), cause.place)))
