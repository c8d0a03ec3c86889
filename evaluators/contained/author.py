"""Serve the author's script: the arguments of ``evaluate(candidate, context)`` and ``score(text, context)``.

First message: ``{"script": text, "functions": [name, ...], "records": [name, ...], "files": {...}, "calls": bool,
"held_out": bool}``, answered by ``{"ready": true}`` or by ``{"raised": text}``. Then, for each candidate and stage,
``{"program": text, "seed": int, "function": name, "knows_held_out": bool}``, answered by ``{"rewards": {...}}`` (null
for a record that is not JSON), ``{"failed": {...}}`` or ``{"raised": text}``, each with ``notes``. Before that answer,
the script sends ``{"progress": text}``, which has no answer, and calls into the candidate: over a direct channel if the
task has one (``"direct": {"began_ns": t, "frame_bytes": n}``, with its two descriptors), or to the worker as
``{"call": name, "args": [...], "timeout_s": s, "held_out": bool}``, answered by ``{"value": v}`` or
``{"failure": {...}}``. The worker also answers with a failure what the channel reports instead of a value; with
``"close_direct": true`` in that answer, later calls go to the worker.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, NoReturn

from . import numba_cache
from .direct_channel import DirectChannel
from .program import DETAIL_CHARS, describe, import_generators, load, reason_of, seed_generators, show_libraries
from .wire import LABEL_CHARS, MAX_NOTES, PROGRESS_CHARS, TooLongError, Wire, encode

NAME = "evaluator"
FOLDER = "data"
_DIRECT_FDS = 2
_HINTS = {"'Reply'": "call() returns a Reply: .unwrap() is its value", "attribute 'program'": "its text is .source"}


class _EvaluationEnd(BaseException):
    """End one evaluation with a failure; not an ``Exception``, so that a script's ``except`` cannot catch it."""

    def __init__(self, failure: dict[str, str]) -> None:
        super().__init__(failure["detail"])
        self.failure = failure


class CallFailure:
    """Failure of a call: kind ``timeout``, ``out_of_memory``, ``crashed`` or ``invalid_output``, reason and text."""

    def __init__(self, kind: str, reason: str, detail: str) -> None:
        self.kind, self.reason, self.detail = kind, reason, detail

    def __repr__(self) -> str:
        return f"CallFailure(kind={self.kind!r}, reason={self.reason!r}, detail={self.detail!r})"


class Reply:
    """Result of a call into the candidate: a JSON value, or a failure."""

    def __init__(self, value: Any = None, failure: CallFailure | None = None) -> None:
        self.value, self.failure = value, failure

    def unwrap(self) -> Any:
        if self.failure is not None:
            raise _EvaluationEnd(vars(self.failure))
        return self.value


class Candidate:
    """The program under evaluation. It runs in another process and exchanges only JSON values with this one."""

    def __init__(self, wire: Wire, source: str, direct: DirectChannel | None = None, *, held_out: bool = False) -> None:
        self._wire, self.source, self._direct = wire, source, direct
        self._held_out = held_out
        self.knows_held_out = False
        self._lock, self._process = Lock(), os.getpid()
        self._owed = 0  # answers of the worker, more than one after a call that a signal ended

    def call(self, name: str, *args: Any, timeout_s: float | None = None, held_out: bool | None = None) -> Reply:
        """Call a function of the program with JSON values.

        ``timeout_s`` limits this call; the rest of the problem's wall limit applies as well. From the first call with
        ``held_out`` on, nothing that the program prints is kept and failures have no text; the default is True if the
        problem has held-out records. Raises ``TypeError`` for an argument that is not JSON, and ``ValueError`` for one
        that is NaN, infinite or too long. Calls of threads wait for each other.
        """
        if self._process == os.getpid():
            with self._lock:
                if self._process:
                    return self._call(name, args, timeout_s, held_out)
        raise RuntimeError("call() in another process, or after the evaluation: use threads, and wait for them")

    def end(self) -> None:
        with self._lock:
            self._process = 0
            self._answer()
            if self._direct is not None:
                self._direct.close()

    def _call(self, name: str, args: tuple[Any, ...], timeout_s: float | None, held_out: bool | None) -> Reply:
        hides = (self._held_out if held_out is None else held_out) and not self.knows_held_out
        self.knows_held_out |= hides
        if not isinstance(name, str):
            raise TypeError(f"call({name!r}): expected the name of a function, as a string")
        if timeout_s is not None:
            timeout_s = float(timeout_s)
        self._answer()  # until the worker has it, both would read from the candidate
        message = {"call": name, "args": args, "timeout_s": timeout_s, "held_out": hides}
        if timeout_s is None and self._direct is not None and not hides:
            reply = self._direct.call(name, args)
            if "value" in reply:
                return Reply(reply["value"])
            message = {"function": name, **reply}
        data = self._wire.pack(message)
        self._owed += 1
        self._wire.send(data)
        answer = self._answer()
        failure = answer.get("failure")
        return Reply(answer.get("value"), None if failure is None else CallFailure(**failure))

    def _answer(self) -> dict[str, Any]:
        """Return the last answer that the worker owes."""
        answer: dict[str, Any] | None = {}
        while self._owed:
            if (answer := self._wire.read()) is None:
                raise SystemExit  # the worker closed the channel
            self._owed -= 1
            if answer.get("close_direct") and self._direct is not None:
                self._direct.close()
                self._direct = None
        return answer or {}


class Context:
    """Seed of one evaluation, with which ``random`` and ``numpy.random`` are seeded, problem files and feedback."""

    def __init__(self, wire: Wire, seed: int, files: dict[str, str]) -> None:
        self._wire, self.seed, self.files = wire, seed, files
        self.notes: list[tuple[str, str]] = []

    def note(self, label: str, text: object) -> None:
        """Store a text with the candidate as feedback for users and prompts. The text must not contain secrets."""
        self.notes.append((str(label), str(text)))

    def progress(self, text: object) -> None:
        """Show a text on the pages of candidate and run while this evaluation runs; the last one counts."""
        self._wire.write({"progress": str(text)[:PROGRESS_CHARS]})

    def invalid(self, detail: str) -> NoReturn:
        """End the evaluation because the answer breaks the rules; ``detail`` explains how."""
        raise _EvaluationEnd({"kind": "invalid_output", "reason": "refused_by_evaluator", "detail": str(detail)})


def serve(wire: Wire) -> None:
    first = wire.read()
    if first is None:
        return
    names = load_script(wire, first, seed=0)
    while names is not None:
        task, fds = wire.read_with_descriptors(_DIRECT_FDS)
        if task is None:
            return
        direct = None
        if len(fds) == _DIRECT_FDS:
            direct = DirectChannel((fds[0], fds[1]), **task["direct"], max_bytes=wire.max_bytes)
        context = Context(wire, task["seed"], dict(first["files"]))
        candidate = Candidate(wire, task["program"], direct, held_out=first["held_out"])
        candidate.knows_held_out = task["knows_held_out"]  # since an earlier stage
        seed_generators(task["seed"])
        function = names[task["function"]]
        argument = candidate if first["calls"] else task["program"]
        outcome = outcome_of(partial(function, argument, context), first, candidate)
        candidate.end()
        report(wire, outcome, context.notes)


def load_script(wire: Wire, first: dict[str, Any], seed: int) -> dict[str, Any] | None:
    """Load the script of the first message, report that it is ready or why not, and return its names or None."""
    text = first["script"]
    os.environ.pop(numba_cache.VARIABLE, None)  # programs that the script starts cannot import that class
    show_libraries()
    try:
        import_generators(text)
        seed_generators(seed)
        # Files beside the script, as Python sees those of any script: modules, and data beside `__file__`.
        folder = os.path.abspath(FOLDER)  # noqa: PTH100  # without an import of pathlib in every evaluation
        sys.path.insert(0, folder)
        names = load(text, NAME, f"{folder}/{NAME}.py")
    except BaseException as error:  # noqa: BLE001  # the script's mistake is a result
        wire.write({"raised": describe(error, text, NAME)})
        return None
    if missing := [name for name in first["functions"] if not callable(names.get(name))]:
        wire.write({"raised": f"the script defines no function {missing[0]!r}"})
        return None
    wire.write({"ready": True})
    return names


def outcome_of(measure: Callable[[], Any], first: dict[str, Any], candidate: Candidate | None = None) -> dict[str, Any]:
    """Return the message with the result or exception of a script's function; ``first`` is the first message."""
    text = first["script"]
    try:
        return {"rewards": _numbers(awaited(measure()), first)}
    except _EvaluationEnd as end:
        return {"failed": end.failure}
    except BaseException as error:  # noqa: BLE001  # the script's mistake is a result
        raised = describe(error, text, NAME, quote=candidate is None or not candidate.knows_held_out).rstrip()
        raised += next((f" ({hint})" for part, hint in _HINTS.items() if part in describe(error, text, NAME)), "")
        return {"raised": raised, "out_of_memory": reason_of(error, NAME) == "out_of_memory"}


def awaited(result: Any) -> Any:
    if not hasattr(result, "__await__"):
        return result
    import asyncio  # late: few scripts need it

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _numbers(rewards: Any, first: dict[str, Any]) -> dict[str, Any]:
    if isinstance(plain := _plain(rewards), int | float):
        rewards = {"score": plain}
    if not isinstance(rewards, dict):
        raise TypeError(f"returned {type(rewards).__name__}: expected a dict of objective name to number, or a number")
    return {str(name): _number(name, value, first) for name, value in rewards.items()}


def _number(name: object, value: Any, first: dict[str, Any]) -> Any:
    plain = _plain(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)  # not JSON: sent as text, so that the worker rejects it with the domain's message
    try:
        encode(plain)
    except (TypeError, ValueError, RecursionError):
        if name in first["records"]:
            return None
        if name not in first.get("named", [name]):  # no reward: it becomes a note
            return text_of(value)[:DETAIL_CHARS]
        raise TypeError(f"reward {str(name)!r} is {type(value).__name__}: expected a finite number") from None
    return plain


def text_of(content: object) -> str:
    try:
        return str(content)
    except Exception as error:  # noqa: BLE001  # a whole number of too many digits, or an object of the program
        return f"{type(content).__name__} without a text: {type(error).__name__}"


def _plain(value: Any) -> Any:
    return tolist() if callable(tolist := getattr(value, "tolist", None)) else value


def report(wire: Wire, outcome: dict[str, Any], notes: list[tuple[str, str]]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        try:
            wire.write(outcome | {"notes": notes})
        except TooLongError:  # at most twelve bytes a character; the worker keeps less
            wire.write(outcome | {"notes": _cut(notes, wire.max_bytes // 16)})
    except (TypeError, ValueError) as error:
        wire.write({"raised": f"the script's return value cannot be sent: {error}", "notes": []})


def _cut(notes: list[tuple[str, str]], left: int) -> list[tuple[str, str]]:
    kept = []
    for label, text in notes[:MAX_NOTES]:
        kept.append((label[:LABEL_CHARS], text[: left + 1]))  # the worker sees what does not fit
        left = max(left - len(text), 0)
    return kept
