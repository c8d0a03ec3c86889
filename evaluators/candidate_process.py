"""The worker's end of one candidate process: send calls and accept each result once."""

import hashlib
import secrets
from dataclasses import dataclass

from pydantic import JsonValue

from evaluators.build_cache import BuiltFiles
from evaluators.channel import ENVELOPE_BYTES, Message
from evaluators.contained.candidate import LOADING
from evaluators.contained.direct_channel import MAX_STRAY_FRAMES
from evaluators.failures import REFUSALS, failure_of
from evaluators.session import EndReason, Session, SessionEndedError, TimeAllowance
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ResourceUsage, SandboxedProcess
from speciate.domain.candidate import Failure
from speciate.domain.files import FilesError, files_of
from speciate.domain.problem import Problem

_NONCE_BITS = 53


@dataclass(frozen=True, slots=True)
class CallResult:
    index: int
    value: JsonValue = None
    failure: Failure | None = None


class CandidateProcess:
    """A process that serves calls into one candidate's program.

    The first frame per call counts. Frames for unknown or answered calls are dropped, and so are frames that were sent
    before their call.
    """

    def __init__(
        self, contained: SandboxedProcess, program: str, seed: int, problem: Problem, built: BuiltFiles | None = None
    ) -> None:
        """Send the program to a process; ``built`` are its files if it is not Python."""
        limits = problem.limits
        self.frame_bytes = limits.output_bytes + ENVELOPE_BYTES
        self.session = Session(contained, frame_bytes=self.frame_bytes, log_bytes=limits.log_bytes)
        self._language = problem.language
        self._limits = limits
        if self._language is None:
            files = program_files(program, problem)
            main = files.pop(problem.main_file, program)
            # The evaluation's own seed cannot be derived from it without the text of the evaluator.
            digest = hashlib.sha256(f"candidate:{problem.evaluator_digest}:{seed}".encode()).digest()
            self.session.post({"program": main, "files": files, "seed": int.from_bytes(digest[:4], "big") >> 1})
        else:
            commands = {"language": self._language.model_dump(mode="json"), "cpu_s": limits.cpu_s}
            self.session.post({"files": built or {}, "file_bytes": limits.file_bytes, **commands})
        self._open = {LOADING: LOADING}  # what the candidate has to repeat, and the number of the call
        self._strays = 0
        self._ended: tuple[ResourceUsage, dict[str, str]] | None = None

    def load(self, deadline: float) -> Failure | None:
        """Wait until a built program is in place and return the failure, if any. Python programs are not built."""
        if self._language is None:
            return None
        limits = self._limits.model_copy(update={"wall_s": self._language.build_s})
        try:
            return self.answer(self.session.allow(limits.wall_s, deadline)).failure
        except SessionEndedError as ended:
            return failure_of(ended, self.end()[0], limits)

    def ask(self, index: int, name: str, args: list[JsonValue]) -> None:
        # A random number, so that nothing sent before the question can be its answer.
        nonce = secrets.randbits(_NONCE_BITS)
        self._open[nonce] = index
        self.session.post({"index": nonce, "call": name, "args": args})

    def answer(self, allowance: TimeAllowance) -> CallResult:
        """Return the next result of an open call; raises ``SessionEndedError``."""
        while True:
            message = self.session.receive(allowance)
            nonce = message.get("index")
            if type(nonce) is int and (index := self._open.pop(nonce, None)) is not None:
                if self._language is not None:
                    allowance.count_ended()
                return _read(index, message, built=self._language is not None)
            self._strays += 1
            if self._strays > MAX_STRAY_FRAMES:
                raise SessionEndedError(EndReason.BROKEN, "too many frames that match no open call")

    def refused(self, message: Message) -> CallResult:
        """Return the result of a call over the direct channel that has no value; raises as ``answer``."""
        return _read(LOADING if message.get("index") == LOADING else 0, message, built=False)

    def end(self) -> tuple[ResourceUsage, dict[str, str]]:
        """Stop the process; return its resource usage and output. Repeated calls return the same."""
        if self._ended is None:
            usage = self.session.end()
            self._ended = usage, self.session.logs()
        return self._ended


def program_files(program: str, problem: Problem) -> dict[str, str]:
    """Return the files of a program by path. A program of plain text has only the main file."""
    try:
        files = files_of(program) if problem.many_files else {}
    except FilesError:
        files = {}  # unreachable for parsed answers; an invalid program fails when it is loaded
    return {problem.main_file: program} | files


def _read(index: int, message: Message, *, built: bool) -> CallResult:
    match message:
        case {"value": value} if index != LOADING or built:
            return CallResult(index, value=value)
        case {"error": str(reason), "detail": str(detail)} if reason in REFUSALS:
            return CallResult(index, failure=Failure(REFUSALS[reason], reason, sanitize(detail)))
        case _:
            raise SessionEndedError(EndReason.BROKEN, "a frame is neither a value nor an error")
