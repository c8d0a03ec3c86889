"""Python functions of this process as evaluators: they score candidates that its own thread leases from the run."""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import JsonValue

from speciate.client import BrokenEvaluatorError, CandidateFailedError, EvaluationWorker, Rewards
from speciate.client.evaluation_worker import located
from speciate.compat.conversion import Converted, convert
from speciate.compat.draft import Draft, DraftRewards
from speciate.compat.naming import UNPROMPTED, described_in
from speciate.domain.candidate import ATTESTED, SANDBOX_LOST, Evaluation, FailureKind
from speciate.domain.capabilities import CALLABLE
from speciate.domain.errors import EvaluatorUnavailableError, InvalidInputError, NotFoundError
from speciate.domain.problem import Problem
from speciate.domain.values import identifier_of, slug_of
from speciate.evolution.fingerprint import fingerprint
from speciate.problems.loader import FILE_NAME
from speciate.problems.writing import toml_text

if TYPE_CHECKING:
    from evaluators.restarting_candidate import RestartingCandidate
    from speciate.client import Client, RunHandle
    from speciate.compat.measuring import Score
    from speciate.local.sandbox import LocalSandbox
    from speciate.schema.evaluations import LeasedEvaluation

T = TypeVar("T")

_EXPECTED: Final = "Return a number, or a dict of numbers by name; texts in it become feedback for the next prompts."
_PARAMETER: Final = "a parameter named candidate gets the loaded candidate, one with any other name the path."
_WAIT_S: Final = 1.0
_STOP_S: Final = 0.1
_PATIENCE: Final = 10
"""Times the seed program's seconds that a candidate may take, if that is more than the wall limit."""
_SEED: Final = "initial_program.py"


class _SandboxLostError(BaseException):
    """Not an ``Exception``, so that a function's ``except`` cannot make it a fault of the program."""


class LoadedCandidate:
    """A program in the sandbox, whose functions a scoring function calls."""

    def __init__(self, program: str, process: RestartingCandidate) -> None:
        self.program, self._process, self._process_id = program, process, os.getpid()

    def call(self, name: str, *args: JsonValue, timeout_s: float | None = None) -> Any:
        """Call a function of the program with JSON values and return its answer, a JSON value.

        Calls of several threads wait for each other.

        Raises:
            CandidateFailedError: It raised, exceeded a limit or answered no JSON; uncaught, the candidate fails.
        """
        if self._process_id != os.getpid():
            raise RuntimeError("call() in another process: call it in threads")
        try:
            result = self._process.call(name, list(args), timeout_s)
        except EvaluatorUnavailableError as error:
            raise _SandboxLostError(error) from error
        if (failure := result.failure) is not None:
            if failure.reason in SANDBOX_LOST:
                raise _SandboxLostError(f"{failure.detail}. `speciate doctor` examines it.")
            detail = f"{name}(): {failure.detail or failure.reason}"
            raise CandidateFailedError(detail, kind=failure.kind, reason=failure.reason)
        return result.value


class ScoreFunction:
    """A function ``score(program_path)`` or ``score(candidate)``; the latter if its parameter has that name."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        try:
            parameters = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # compiled
            parameters = []
        self._takes_candidate = parameters[:1] == ["candidate"]
        digest, self.unread = fingerprint(function)
        self._capability = CALLABLE + digest[:16]
        self._dropped: set[str] = set()
        self._failure: BaseException | None = None
        self._seed_s = 0.0

    def problem(
        self, program: Path | str | None, score: Score | None, *, name: str | None = None, **goals: Any
    ) -> Converted:
        """Return the problem of a program that this function scores; ``goals`` as of ``convert``."""
        text, origin = _text_of(program)
        title = name or f"{origin} {self._name}".strip()
        task = inspect.getdoc(self._function) or described_in("", text)
        draft = _FunctionDraft(
            slug=name or slug_of(title, "evolved"),
            title=title,
            seed=_SEED,
            files={_SEED: text},
            adapter=self._capability,
            description=task,
            remarks=() if task else (UNPROMPTED,),
        )

        converted = convert(draft, score, **goals, anyway=True)
        if not self._dropped:
            return converted
        remark = f"{self._name}() returns neither a number nor a text as {', '.join(sorted(self._dropped))}: left out"
        return replace(converted, remarks=(*converted.remarks, remark))

    @contextmanager
    def serving(self, client: Client, run: RunHandle, problem: Problem, sandbox: LocalSandbox) -> Iterator[None]:
        """Score the candidates of a run in a thread, until the end of the block."""

        def rewards(candidate: LeasedEvaluation) -> Rewards:
            values, texts = within(
                self._limit_s(problem),
                worker.stopping,
                lambda: self._measure(problem, candidate.program, candidate.seed, sandbox),
            )
            return Rewards({each: values.get(each) for each in candidate.objectives}, texts)

        scored = self._seed_s > 0  # else by the call that began the run
        if not scored and run.record.evaluated:
            first = run.candidate(1)
            self._seed_s, scored = first.wall_s, first.rewards is not None
        worker = EvaluationWorker(
            client, rewards, run=run.id, capabilities=[self._capability], wait_s=_WAIT_S, worked=scored
        )

        def work() -> None:
            try:
                worker.run_until()
            except BaseException as error:  # noqa: BLE001 - shown by the thread that watches the run
                self._failure = error

        thread = threading.Thread(target=work, name="score", daemon=True)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join(2 * _WAIT_S)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def score_seed(self, problem: Problem, seed: int, sandbox: LocalSandbox) -> Evaluation:
        started = time.monotonic()
        try:
            values, texts = self._measure(problem, problem.seed_program, seed, sandbox)
        except (InvalidInputError, BrokenEvaluatorError):
            raise
        except BaseException as error:  # in a thread: SystemExit is the program's, Ctrl-C does not arrive here
            what = str(error).removesuffix(".") if isinstance(error, CandidateFailedError) else located(error)
            remedy = None
            if "defines no function" in what:
                defined = ", ".join(re.findall(r"(?m)^def (\w+)", problem.seed_program))
                remedy = f"It defines {defined or 'none'}."
            elif re.search("'str' object|LoadedCandidate", what):
                passed = "the loaded candidate" if self._takes_candidate else "the path of the program's file"
                remedy = f"It received {passed}: {_PARAMETER}"
            raise InvalidInputError(f"{self._name}() fails on the seed program: {what}.", remedy=remedy) from error
        texts |= {each: repr(value) for each, value in values.items() if not math.isfinite(value)}
        listed = "\n".join(f"{each} = {value!r}" for each, value in values.items())
        wall_s = time.monotonic() - started
        self._seed_s = max(self._seed_s, wall_s)
        return Evaluation(rewards=(0.0,), artifacts={**texts, "other metrics": listed}, tier=ATTESTED, wall_s=wall_s)

    def _measure(
        self, problem: Problem, program: str, seed: int, sandbox: LocalSandbox
    ) -> tuple[dict[str, float], dict[str, str]]:
        if not self._takes_candidate:
            with tempfile.TemporaryDirectory(prefix="speciate-", ignore_cleanup_errors=True) as folder:
                path = Path(folder, problem.main_file)
                path.write_text(program, "utf-8")
                return self._read(self._function(str(path)))
        wall_s, lost = self._limit_s(problem), ""
        limits = problem.limits.model_copy(update={"wall_s": wall_s, "cpu_s": max(problem.limits.cpu_s, wall_s)})
        problem = problem.model_copy(update={"limits": limits})
        for _ in range(2):  # as the service repeats an evaluation that lost its sandbox
            try:
                with sandbox.sandbox().candidate(problem, program, seed) as process:
                    return self._read(self._function(LoadedCandidate(program, process)))
            except (EvaluatorUnavailableError, _SandboxLostError) as error:
                lost = str(error)
        raise BrokenEvaluatorError(f"the sandbox does not work: {lost}")

    def _limit_s(self, problem: Problem) -> float:
        return max(problem.limits.wall_s, _PATIENCE * self._seed_s)

    def _read(self, answer: Any) -> tuple[dict[str, float], dict[str, str]]:
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        texts: dict[str, str] = {}
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):  # as for GEPA
            answer, notes = answer
            texts = {str(name): note if isinstance(note, str) else repr(note) for name, note in notes.items()}
        answer = _scalar(answer)
        if isinstance(answer, numbers.Real) and not isinstance(answer, bool):
            answer = {"score": answer}
        if not isinstance(answer, Mapping):
            raise InvalidInputError(f"{self._name}() returned {type(answer).__name__}.", remedy=_EXPECTED)
        named = {identifier_of(str(name)): _scalar(value) for name, value in answer.items()}
        if len(named) < len(answer):
            names = ", ".join(map(str, answer))
            raise InvalidInputError(f"{self._name}() returned {names}: some share a name.", remedy="Use ASCII letters.")
        values = {name: float(value) for name, value in named.items() if isinstance(value, numbers.Real)}
        if not values:
            raise InvalidInputError(f"{self._name}() returned no number.", remedy=_EXPECTED)
        texts |= {name: value for name, value in named.items() if isinstance(value, str)}
        self._dropped |= named.keys() - values.keys() - texts.keys()
        return values, texts


def _scalar(value: Any) -> Any:
    """Return an array or a tensor without dimensions as a number."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


@dataclass(frozen=True, slots=True)
class _FunctionDraft(Draft):
    def texts(self, rewards: DraftRewards) -> dict[str, str]:
        definition = Draft._definition(self, rewards) | {
            "kind": "evaluator",
            "evaluation": "external",
            "capabilities": [self.adapter],
            "data_files": [],
        }
        del definition["evaluator"]
        return {FILE_NAME: toml_text(definition, {}), self.seed: self.files[self.seed]}


def within(limit_s: float, stopping: threading.Event, measure: Callable[[], T]) -> T:
    """Return what a call returns; after the limit, or when the worker stops, its thread goes on unheeded."""
    future = Future[T]()

    def work() -> None:
        try:
            future.set_result(measure())
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=work, name="candidate", daemon=True).start()
    end = time.monotonic() + limit_s
    while not wait([future], _STOP_S).done:
        if stopping.is_set() or time.monotonic() > end:
            detail = f"no result within {limit_s:.0f} seconds"
            raise CandidateFailedError(detail, kind=FailureKind.TIMEOUT, reason="wall_limit")
    return future.result()


def _text_of(program: Path | str | None) -> tuple[str, str]:
    """Return the text of a program, given as such or as a file, and where it is from."""
    written = r"\n|^(?:def|import|from|class|async) |^\w+ *=|[^/]{256}"
    if isinstance(program, str) and re.search(written, program) and not os.path.isfile(program):  # noqa: PTH113
        return program, ""
    if program is None or not Path(program).is_file():
        raise NotFoundError(
            f"the program {program} is not there: expected a file, or the text of a program.", remedy="Check the path."
        )
    try:
        return Path(program).read_text("utf-8-sig"), Path(program).absolute().parent.name
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{program} is not UTF-8 text: {error}.") from None
