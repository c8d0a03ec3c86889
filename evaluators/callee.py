"""One candidate process as the broker sees it: questions go in, answers come out, each counted once."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from evaluators.channel import ENVELOPE_BYTES, Message
from evaluators.session import Ending, Session, SessionEndedError
from evaluators.texts import clean
from evaluators.tiers.sandbox import Contained, Usage
from evaluators.verdict import REFUSALS
from speciate.domain.candidate import Failure
from speciate.domain.problem import Limits

LOADING = -1
"""Index under which a program that cannot be loaded is reported."""

_MAX_STRAY_FRAMES = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program gave for one question.

    Attributes:
        index: Which question.
        value: The value; None on failure.
        failure: Why there is none; None on success.
    """

    index: int
    value: JsonValue = None
    failure: Failure | None = None


class Callee:
    """A process that serves calls into one candidate's program.

    The first frame per question wins; frames for questions that were not asked, or are answered already, are dropped.
    """

    def __init__(self, contained: Contained, program: str, seed: int, limits: Limits) -> None:
        frame_bytes = limits.output_bytes + ENVELOPE_BYTES
        self._session = Session(contained, frame_bytes=frame_bytes, log_bytes=limits.log_bytes)
        self._session.post({"program": program, "seed": seed})
        self._open = {LOADING}
        self._strays = 0

    def ask(self, index: int, name: str, args: list[JsonValue]) -> None:
        """Queue a call."""
        self._open.add(index)
        self._session.post({"index": index, "call": name, "args": args})

    def answer(self, deadline: float) -> Answer:
        """Return the next answer to a question that is open.

        Raises:
            SessionEndedError: None will come.
        """
        while True:
            message = self._session.receive(deadline)
            index = message.get("index")
            if type(index) is int and index in self._open:
                self._open.remove(index)
                return _read(index, message)
            self._strays += 1
            if self._strays > _MAX_STRAY_FRAMES:
                raise SessionEndedError(Ending.BROKEN, "too many frames that answer nothing")

    def end(self) -> tuple[Usage, dict[str, str]]:
        """Stop the process and return what it used and what it printed."""
        usage = self._session.end()
        return usage, self._session.logs()


def _read(index: int, message: Message) -> Answer:
    match message:
        case {"value": value} if index != LOADING:
            return Answer(index, value=value)
        case {"error": str(reason), "detail": str(detail)} if reason in REFUSALS:
            return Answer(index, failure=Failure(REFUSALS[reason], reason, clean(detail)))
        case _:
            raise SessionEndedError(Ending.BROKEN, "a frame is neither an answer nor a refusal")
