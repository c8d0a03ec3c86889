"""Python functions as evaluators: what a program does to them is its own failure."""

from __future__ import annotations

import runpy
import threading
import time
from pathlib import Path
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
    """Leases programs and keeps what is submitted for them."""

    def __init__(self, *programs: str) -> None:
        fields = {"problem": "test", "number": 2, "seed": 1, "objectives": ["score"]}
        self._leases = [SimpleNamespace(id=uuid4(), lease=uuid4(), program=each, **fields) for each in programs]
        self.bodies, self.evaluations = list[dict[str, Any]](), self
        self.leased, self.submitted, self.returned = threading.Event(), threading.Event(), threading.Event()

    def acquire(self, **_: Any) -> list[SimpleNamespace]:
        self.leased.set()
        time.sleep(0.01)
        return [self._leases.pop()] if self._leases else []

    def renew(self, leases: list[Any], lease_s: float) -> list[SimpleNamespace]:
        self.returned.set()
        return [SimpleNamespace(lease_until=time.time()) for _ in leases]

    def submit_all(self, bodies: list[dict[str, Any]]) -> list[SimpleNamespace]:
        self.bodies += bodies
        if not self._leases:
            self.submitted.set()
        return [SimpleNamespace(status=Acceptance.BOOKED)]


def test_a_seed_program_that_ends_the_process_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="fails on the seed program: SystemExit: 3"):
        problem_of(ScoreFunction(score), "import sys\nsys.exit(3)\n")


def test_an_exception_without_a_text_fails_its_candidate() -> None:
    raises = "class Odd(Exception):\n    def __str__(self): return self.text\ndef solve(): raise Odd\n"
    function, service = ScoreFunction(score), Service(raises)
    run: Any = SimpleNamespace(id=uuid4())
    with function.serving(service, run, problem_of(function, SEED), SANDBOX):  # type: ignore[arg-type]
        assert service.submitted.wait(60)
    assert service.bodies[0]["failure"]["detail"] == "Odd"


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


def test_a_resumed_run_whose_seed_program_was_scored_goes_on_after_five_failures() -> None:
    def fail(program_path: str) -> float:
        raise ValueError("this program is bad")

    problem = problem_of(ScoreFunction(score), SEED)
    for rewards in ({"score": 1.0}, None):
        function, service = ScoreFunction(fail), Service(*[SEED] * 6)
        first = SimpleNamespace(wall_s=1.0, rewards=rewards)
        run: Any = SimpleNamespace(
            id=uuid4(), record=SimpleNamespace(evaluated=1), candidate=lambda _, first=first: first
        )
        with function.serving(service, run, problem, SANDBOX):  # type: ignore[arg-type]
            assert (service.submitted if rewards else service.returned).wait(60)
        assert len(service.bodies) == (6 if rewards else 4)


def test_two_numbers_never_share_a_name() -> None:
    with pytest.raises(InvalidInputError, match="精度"):
        problem_of(ScoreFunction(lambda path: {"速度": 1.0, "精度": -1.0}), SEED)


@pytest.mark.parametrize("program", ["solve = lambda: 1", "import math; solve = lambda: " + "1 + " * 100 + "1"])
def test_a_program_of_one_line_is_no_path(program: str) -> None:
    assert problem_of(ScoreFunction(score), program).seed_program == program


def test_a_program_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_bytes(b"\xef\xbb\xbf" + SEED.encode())
    assert problem_of(ScoreFunction(score), tmp_path / "program.py").seed_program == SEED
