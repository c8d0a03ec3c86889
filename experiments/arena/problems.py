"""Problems of the arena, and their evaluation in this process.

A candidate is executed without a sandbox: it comes from a stand-in that edits programs at random, so it may loop or ask
for much memory, but means no harm.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, SimpleNamespace
from typing import Any, Final

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.problem import Problem
from speciate.problems.loader import known_problems, load_problem

SECONDS: Final = 0.5
"""Processor seconds of one evaluation."""
_MEMORY: Final = 3 << 30

DEVELOPMENT: Final = (
    "circle-packing-26",
    "planck-radiation",
    "circle-packing-32",
    "hexagons-11",
    "heilbronn-triangle-11",
    "heilbronn-convex-13",
    "distance-ratio-2d-16",
    "autocorrelation-2",
    "erdos-minimum-overlap",
    "cache-eviction",
    "job-scheduling",
)
"""Problems that the default strategy was developed on."""
HELD_OUT: Final = (
    "relativistic-energy",
    "circles-in-square-26",
    "circles-in-rectangle-21",
    "hexagons-12",
    "heilbronn-convex-14",
    "distance-ratio-3d-14",
    "autocorrelation-1",
    "autocorrelation-3",
    "uncertainty-inequality",
    "expert-placement",
    "spot-instances",
    "telemetry-compression",
)
"""Problems of the declared verdict."""


class TimeIsOverError(BaseException):
    """Raised in a candidate that exceeds its processor time; no ``except Exception`` of it catches this."""


def limit_memory() -> None:
    """Limit the memory of this process, so that a program that asks for more fails alone."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


@cache
def problem_of(slug: str) -> Problem:
    """Return a bundled problem without its time limit, which this evaluation has none of."""
    return load_problem(known_problems()[slug])


class _Context:
    """What an author's script receives beside the candidate."""

    def __init__(self, problem: Problem) -> None:
        self.files = problem.files

    def note(self, name: str, text: str) -> None:
        """Keep no feedback."""

    def invalid(self, reason: str) -> None:
        raise ValueError(reason)


class _Candidate:
    def __init__(self, program: str) -> None:
        self.source = program
        self._names: dict[str, Any] = {"__name__": "candidate"}
        exec(compile(program, "candidate.py", "exec"), self._names)  # noqa: S102 - see the module's docstring

    def call(self, name: str, *arguments: Any, **_: Any) -> SimpleNamespace:
        """Call a function of the candidate; values pass through JSON, as between processes."""
        try:
            value = json.loads(json.dumps(self._names[name](*json.loads(json.dumps(arguments)))))
        except Exception as error:  # noqa: BLE001 - a random edit may raise anything
            return SimpleNamespace(value=None, failure=SimpleNamespace(reason=repr(error)[:200]), unwrap=_raise(error))
        return SimpleNamespace(value=value, failure=None, unwrap=lambda: value)


def _raise(error: Exception) -> Callable[[], Any]:
    def unwrap() -> Any:
        raise error

    return unwrap


class InProcessEvaluator:
    """Evaluates candidates by calling the problem's evaluator in this process."""

    tier = "in process"

    def __init__(self, slug: str) -> None:
        self._script: dict[str, Any] = {"__name__": "evaluator"}
        with _importable(problem_of(slug).files):
            exec(compile(problem_of(slug).evaluator, f"{slug}.py", "exec"), self._script)  # noqa: S102 - a bundled script
        self._results: dict[str, Evaluation] = {}

    def evaluate(self, problem: Problem, programs: Sequence[str], **_: Any) -> list[Evaluation]:
        return [self.evaluation(problem, program) for program in programs]

    def evaluation(self, problem: Problem, program: str) -> Evaluation:
        if program not in self._results:
            self._results[program] = self._evaluated(problem, program)
        return self._results[program]

    def _evaluated(self, problem: Problem, program: str) -> Evaluation:
        try:
            with _limited():
                rewards = problem.space.vector(self._script["evaluate"](_Candidate(program), _Context(problem)))
        except (Exception, TimeIsOverError) as error:  # noqa: BLE001 - a random edit may raise anything
            return Evaluation(
                failure=Failure(kind=FailureKind.CRASHED, reason=type(error).__name__, detail=str(error)[:200])
            )
        return Evaluation(rewards=rewards)


@contextmanager
def _importable(files: Mapping[str, str]) -> Iterator[None]:
    """Have a script find the modules beside it, of which other problems have some by the same names."""
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, "utf-8")
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            for name in files:
                sys.modules.pop(Path(name).stem, None)


@contextmanager
def _limited() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise TimeIsOverError

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
