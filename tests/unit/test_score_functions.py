"""Python functions as evaluators: what a program does to them is its own failure."""

from __future__ import annotations

import runpy
import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from speciate.domain.candidate import FailureKind
from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.evolution import functions
from speciate.evolution.functions import ScoreFunction
from speciate.schema.evaluations import Acceptance

SEED = "def solve(): return 1.0\n"
SANDBOX: Any = None  # a function of a path needs none


def score(program_path: str) -> float:
    """Call the program."""
    return float(runpy.run_path(program_path)["solve"]())


def problem_of(function: ScoreFunction, program: str) -> Problem:
    return function.problem(program, lambda each, seeds: [function.score_seed(each, n, SANDBOX) for n in seeds]).problem


class Service:
    """Leases one program and keeps what is submitted for it."""

    def __init__(self, program: str) -> None:
        lease = {"id": uuid4(), "lease": uuid4(), "number": 2, "program": program, "seed": 1, "objectives": ["score"]}
        self._leases, self.bodies, self.evaluations = [SimpleNamespace(**lease)], list[dict[str, Any]](), self
        self.leased, self.submitted = threading.Event(), threading.Event()

    def acquire(self, **_: Any) -> list[SimpleNamespace]:
        self.leased.set()
        time.sleep(0.01)
        return [self._leases.pop()] if self._leases else []

    def renew(self, leases: object, lease_s: float) -> None:
        pass

    def submit_all(self, bodies: list[dict[str, Any]]) -> list[SimpleNamespace]:
        self.bodies += bodies
        self.submitted.set()
        return [SimpleNamespace(status=Acceptance.BOOKED)]


def test_a_seed_program_that_ends_the_process_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="fails on the seed program: SystemExit: 3"):
        problem_of(ScoreFunction(score), "import sys\nsys.exit(3)\n")


def test_a_candidate_has_a_wall_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    function, service = ScoreFunction(score), Service("import time\nwhile True: time.sleep(0.01)\n")
    problem = problem_of(function, SEED)
    monkeypatch.setattr(functions, "_PATIENCE", 0)
    problem = problem.model_copy(update={"limits": problem.limits.model_copy(update={"wall_s": 0.2})})
    run: Any = SimpleNamespace(id=uuid4())
    with function.serving(service, run, problem, SANDBOX):  # type: ignore[arg-type]
        assert service.submitted.wait(60)
    assert service.bodies[0]["failure"]["kind"] == FailureKind.TIMEOUT


def test_a_stop_waits_for_no_candidate() -> None:
    function, service = ScoreFunction(score), Service("import time\nwhile True: time.sleep(0.01)\n")
    problem = problem_of(function, SEED)
    run: Any = SimpleNamespace(id=uuid4())
    with function.serving(service, run, problem, SANDBOX):  # type: ignore[arg-type]
        assert service.leased.wait(60)
    assert service.bodies == []
    assert not any(each.name.startswith("evaluation_") for each in threading.enumerate())  # they delay the exit
