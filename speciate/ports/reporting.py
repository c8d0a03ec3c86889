"""Progress of long evaluations, reported while they run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_REPORTER: ContextVar["_Reporter | None"] = ContextVar("reporter", default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    candidate: int | None = None  # number of the candidate under evaluation; None if unknown
    text: str = ""  # untrusted text; empty at the beginning of an evaluation
    # True if the evaluator asked for the text to be shown; False for the beginning of an evaluation, and for a line
    # that it printed.
    asked: bool = False


@dataclass(slots=True)
class _Reporter:
    receive: Callable[[Progress], None]
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)
    candidate: int | None = None


@contextmanager
def reporting_to(receive: Callable[[Progress], None]) -> Iterator[None]:
    """Pass what this thread reports within the block to a function."""
    token = _REPORTER.set(_Reporter(receive))
    try:
        yield
    finally:
        _REPORTER.reset(token)


def name_evaluations(numbers: Mapping[tuple[str, int], int]) -> None:
    """Declare the candidates of the evaluations that follow, by program and seed: noisy problems share seeds."""
    if (reporter := _REPORTER.get()) is not None:
        reporter.numbers = numbers


def report_evaluation(program: str, seed: int) -> None:
    """Report that the evaluation of a program with a seed begins; without a receiver it is dropped."""
    if (reporter := _REPORTER.get()) is not None:
        reporter.candidate = reporter.numbers.get((program, seed))
        reporter.receive(Progress(reporter.candidate))


def report_progress(text: str, *, asked: bool = True) -> None:
    """Report an untrusted text of progress; without a receiver it is dropped."""
    if (reporter := _REPORTER.get()) is not None:
        reporter.receive(Progress(reporter.candidate, text, asked))
