"""An author's script and a candidate in one process: for hand-made answers; the worker's own tests keep them apart."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from speciate.domain.problem import Problem


class EndedError(Exception):
    """The evaluation ended with the candidate's failure."""


class Candidate:
    def __init__(self, source: str) -> None:
        self.source = source
        self._names: dict[str, object] = {}
        exec(compile(source, "candidate", "exec"), self._names)

    def call(self, name: str, *args: object, timeout_s: float | None = None) -> SimpleNamespace:
        try:
            value = json.loads(json.dumps(self._names[name](*json.loads(json.dumps(args))), allow_nan=False))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            failure = SimpleNamespace(kind="crashed", reason="raised", detail=repr(error))
            return SimpleNamespace(value=None, failure=failure, unwrap=lambda: _end(failure.detail))
        return SimpleNamespace(value=value, failure=None, unwrap=lambda: value)


class Context:
    def __init__(self, files: dict[str, str]) -> None:
        self.seed, self.files = 0, files

    def note(self, label: str, text: str) -> None:
        assert isinstance(label, str)
        assert isinstance(text, str)

    def invalid(self, detail: str) -> None:
        raise EndedError(detail)


def _end(detail: str) -> None:
    raise EndedError(detail)


Score = Callable[[Problem, str], dict[str, float]]


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Score:
    """Score a program by a problem's evaluator; ``EndedError`` when it ends with a failure."""

    def run(problem: Problem, program: str) -> dict[str, float]:
        names: dict[str, object] = {}
        for name, text in problem.files.items():
            (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        exec(compile(problem.evaluator, "evaluate", "exec"), names)
        rewards = names["evaluate"](Candidate(program), Context(problem.files))
        return dict(zip(problem.space.names, problem.space.vector(rewards), strict=True))

    return run


@pytest.fixture
def ended() -> type[Exception]:
    return EndedError
