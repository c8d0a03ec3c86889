"""Functions as evaluators: what they may return, and when a run continues with them."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.client import BrokenEvaluatorError, CandidateFailedError
from speciate.compat.conversion import Converted
from speciate.domain.errors import InvalidInputError
from speciate.evolution.fingerprint import fingerprint
from speciate.evolution.functions import ScoreFunction, _text_of
from speciate.local.sandbox import LocalSandbox
from speciate.prompts.render import problem_text

PROGRAM = "def solve():\n    return 0.4\n"
NO_SANDBOX = cast("LocalSandbox", None)


def converted(score: Callable[..., Any], program: str = PROGRAM, **goals: Any) -> Converted:
    function = ScoreFunction(score)
    return function.problem(
        program, lambda problem, seeds: [function.score_seed(problem, seed, NO_SANDBOX) for seed in seeds], **goals
    )


def digest(function: Any) -> str:
    return fingerprint(function)[0]


class Scorer:
    def __init__(self, target: object) -> None:
        self.target = target

    def __call__(self, path: str) -> float:
        return len(path)

    def method(self, path: str) -> float:
        return len(path)


def closure(target: object) -> Callable[[str], float]:
    def score(path: str) -> float:
        return len(path) if target else 0.0

    return score


def default(target: object) -> Callable[[str], float]:
    def score(path: str, goal: object = target) -> float:
        return len(path) if goal else 0.0

    return score


def plain(path: str, target: object) -> float:
    return len(path) if target else 0.0


class Guarded(Scorer):
    """Has no truth, length, equality or hash."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError

    def __len__(self) -> int:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise ValueError


def of_module(path: str) -> float:
    return len(path) if TARGET else 0.0  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    "made",
    [
        closure,
        default,
        Scorer,
        lambda target: Scorer(target).method,
        lambda target: partial(plain, target=target),
        lambda target: FunctionType(of_module.__code__, {**globals(), "TARGET": target}),
    ],
)
@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (1.0, 1.0, 2.0),
        ([{"a": 1}], [{"a": 1}], [{"a": 2}]),
        (np.arange(3), np.arange(3), np.arange(4)),
        (Scorer(1), Scorer(1), Scorer(2)),
        (Guarded(1), Guarded(1), Guarded(2)),
        (0, 0, ""),
    ],
)
def test_another_captured_value_is_another_evaluator(
    made: Callable[[object], object], one: object, same: object, other: object
) -> None:
    assert digest(made(one)) == digest(made(same))
    assert digest(made(one)) != digest(made(other))


class Erratic:
    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


def test_a_path_with_an_equals_sign_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lr=1").mkdir()
    Path("lr=1/p.py").write_text("x = 1\n")
    assert _text_of("lr=1/p.py") == ("x = 1\n", "lr=1")


def test_objects_that_cannot_be_compared_are_named() -> None:
    assert fingerprint(closure([threading.Lock(), Erratic()]))[1] == {"lock", "Erratic"}
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert fingerprint(closure(deep))[1] == {"deeply nested data"}
    while deep:  # else its end is as deep a recursion
        deep = deep[0]


@pytest.mark.parametrize("use", ["from helping import aim", "import helping\ndef aim(): return helping.aim()"])
def test_another_helper_beside_the_script_is_another_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for value in (1, 1, 22):
        (tmp_path / "helping.py").write_text(f"GOAL = {value}\ndef aim():\n    return GOAL\n")
        (tmp_path / "script.py").write_text(f"{use}\ndef score(path):\n    return aim()\n")
        for name in ("helping", "script"):
            monkeypatch.delitem(importlib.import_module("sys").modules, name, raising=False)
        importlib.invalidate_caches()
        digests.append(digest(importlib.import_module("script").score))
    assert digests[0] == digests[1] != digests[2]


def problem_of(answer: object, **goals: Any) -> Any:
    def score(path: str) -> object:
        return answer

    return converted(score, **goals)


@pytest.mark.parametrize(
    ("answer", "goals", "name"),
    [
        ({"combined_score": float("nan"), "other": 1.0}, {}, "combined_score is nan"),
        ({"loss": float("inf")}, {"minimize": ("loss",)}, "loss is inf"),
    ],
)
def test_a_number_that_is_not_finite_is_named(answer: object, goals: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name}: expected a finite number"):
        problem_of(answer, **goals)


@pytest.mark.parametrize(
    "answer", [np.array(2.5), np.float64(2.5), (2.5, {"note": "x", "parts": [1]}), ({"score": np.array(2.5)}, {})]
)
def test_forms_of_a_score(answer: object) -> None:
    assert problem_of(answer).seed == {"score": 2.5}


def test_the_prompt_names_the_python_that_runs_the_program() -> None:
    problem = ScoreFunction(closure("a")).problem(PROGRAM, NO_SANDBOX).problem
    assert f"Each evaluation has Python 3.{sys.version_info.minor} with numpy, scipy; one core; " in problem_text(
        problem
    )


def test_an_asynchronous_function_is_awaited() -> None:
    async def score(path: str) -> float:
        await asyncio.sleep(0)
        return 2.5

    assert converted(score).seed == {"score": 2.5}


def test_nested_values_are_left_out_with_a_note() -> None:
    converted = problem_of({"score": 1.0, "cases": [1, 2], "note": "far"})
    assert any("as cases: left out" in remark for remark in converted.remarks)
    assert converted.artifacts["note"] == "far"


def test_a_function_that_expects_a_candidate_learns_how_to_get_it() -> None:
    def score(program: Any) -> float:
        return float(program.call("solve"))

    with pytest.raises(InvalidInputError, match="the path of the program's file: a parameter named candidate"):
        converted(score)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (RuntimeError("my data base is down"), r"my data base is down \(.*\.py:\d+\)\."),
        (CandidateFailedError("g(): the program defines no function 'g'"), r"no function 'g'\. It defines solve\."),
    ],
)
def test_a_remedy_is_about_the_error(error: Exception, ending: str) -> None:
    def score(path: str) -> float:
        raise error

    with pytest.raises(InvalidInputError, match=f"{ending}$"):
        converted(score)


@pytest.mark.parametrize(
    "names", ["{'a', 'b', 'c', 'd'}", "[{'a': frozenset('abcd')}]", "__import__('torch').tensor([1.0, 2.0])"]
)
def test_a_set_and_a_tensor_give_one_digest_in_all_processes(tmp_path: Path, names: str) -> None:
    if "torch" in names:
        pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(f"NAMES = {names}\ndef score(path):\n    return len(NAMES)\n")
    code = "import script; from speciate.evolution.fingerprint import fingerprint; print(fingerprint(script.score)[0])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            check=True,
            capture_output=True,
        ).stdout
        for seed in "123"
    }
    assert len(digests) == 1


SLEEPY = "import time\ndef solve(x, seconds=0.0):\n    time.sleep(seconds)\n    return 2 * x\n"


def measured(score: Callable[..., Any], sandbox: SandboxEvaluator, seed_s: float = 0.0) -> Any:
    """Return what a function with calls into the sandbox gives a program, with a wall limit of one second."""
    function = ScoreFunction(score)
    problem = function.problem(SLEEPY, None).problem
    problem = problem.model_copy(update={"limits": problem.limits.model_copy(update={"wall_s": 1.0})})
    function._seed_s = seed_s
    return function._measure(problem, SLEEPY, 0, cast("LocalSandbox", SimpleNamespace(sandbox=lambda: sandbox)))[0]


def test_calls_of_threads_get_their_own_answers(strongest: SandboxEvaluator) -> None:
    def score(candidate: Any) -> float:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda i: candidate.call("solve", i), range(40))).index(78)

    assert measured(score, strongest) == {"score": 39}


def test_calls_have_ten_times_the_seconds_of_the_seed_program(strongest: SandboxEvaluator) -> None:
    def score(candidate: Any) -> float:
        return float(candidate.call("solve", 1, 1.5))

    assert measured(score, strongest, seed_s=0.5) == {"score": 2}
    with pytest.raises(CandidateFailedError, match="within the wall limit of 1 s"):
        measured(score, strongest)


@pytest.mark.parametrize("times", [1, 2])
def test_who_loses_the_sandbox_is_measured_again_once(strongest: SandboxEvaluator, times: int) -> None:
    left = [None] * times

    def score(candidate: Any) -> float:
        candidate.call("solve", 1)
        if left:
            left.pop()
            os.kill(sandbox.zygotes[-1], signal.SIGKILL)
            with suppress(Exception):  # what the function makes of it does not count
                candidate.call("solve", 1, 0.2)
        return 1.0

    with closing(SandboxEvaluator(strongest.tier)) as sandbox:
        if times == 1:
            assert measured(score, sandbox) == {"score": 1.0}
        else:
            with pytest.raises(BrokenEvaluatorError, match="the sandbox does not work"):
                measured(score, sandbox)
