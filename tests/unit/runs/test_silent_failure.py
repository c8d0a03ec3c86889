"""Errors that an evaluator reports while it gives rewards."""

from __future__ import annotations

from uuid import UUID

import pytest

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.work import RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.silent_failure import describe_seed_failure, reported_error, silent_failure, stated_failure
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_policy, toy_problem, toy_spec

TRACE = """Traceback (most recent call last):
  File "evaluator.py", line 3, in evaluate
    import jax
ModuleNotFoundError: No module named 'jax'
"""


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        (TRACE, "ModuleNotFoundError: No module named 'jax'", "Add the package of jax to `requirements`"),
        ("error: BlockingIOError: [Errno 11] Resource temporarily unavailable", "BlockingIOError", "external"),
        ("RuntimeError: can't start new thread", "RuntimeError", "limits.threads"),
        ("ran: PermissionError: [Errno 1] Operation not permitted", "PermissionError", "external"),
        ("urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>", "URLError", "no network"),
        (
            "urllib.error.URLError: <urlopen error [Errno 1] Operation not permitted>",
            "URLError",
            "evolve(program, score)",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'wanted.csv'", "wanted.csv", "Put wanted.csv"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'Rscript'", "Rscript", "nor a program that the"),
        ("my.module.StrangeException: what", "StrangeException", "Correct the evaluator"),
    ],
)
def test_an_error_is_found_with_its_remedy(text: str, line: str, remedy: str) -> None:
    found = reported_error({"advice": "all is well", "stderr": f"started\n{text}\nended"})
    assert found is not None
    assert line in found.line
    assert remedy in found.remedy
    assert found.place == "stderr"


@pytest.mark.parametrize("text", ["", "an error of 0.5", "mean absolute error = 3", "no exceptions", "x" * 200_000])
def test_words_about_errors_are_none(text: str) -> None:
    assert reported_error({"advice": text}) is None


def test_a_line_of_a_traceback_has_its_place_outside_libraries() -> None:
    trace = TRACE.replace("ModuleNotFoundError", '  File "/usr/lib/python3/x.py", line 9, in y\nModuleNotFoundError')
    found = reported_error({"stderr": trace})
    assert found is not None
    assert found.line == "ModuleNotFoundError: No module named 'jax' (evaluator.py, line 3)"


@pytest.mark.parametrize(
    ("label", "text", "words"),
    [
        ("log", "loading\nevaluation failed: No such file or directory: 'a.csv'", "Put a.csv beside"),
        ("error", "No such file or directory: 'a.csv'", "Put a.csv beside"),
        ("log", "could not score it", "Correct the evaluator"),
    ],
)
def test_worst_rewards_show_what_the_evaluator_printed_last(label: str, text: str, words: str) -> None:
    texts = {"other metrics": "loss = 3", label: text}
    found = silent_failure(toy_problem(), Evaluation(rewards=(0.0, 10.0), artifacts=texts))
    assert found is not None
    assert text.rpartition("\n")[2] in found.describe()
    assert text.rpartition("\n")[2] in found.as_failure().detail
    assert words in found.remedy
    assert "worst_seed = true" in found.remedy


def test_a_reward_beyond_its_range_names_the_range() -> None:
    found = silent_failure(toy_problem(), Evaluation(rewards=(-1.0, 120.0), artifacts={}))
    assert found is not None
    assert "`x` = -1 lies beyond its range [0, 10]: declare its `range`" in found.describe()


def test_files_of_the_script_are_texts_in_memory() -> None:
    problem = toy_problem().model_copy(update={"files": {"points.json": "[]", "helpers.py": ""}})
    for error in ("No such file or directory: 'points.json'", "No module named 'helpers'"):
        found = silent_failure(problem, Evaluation(rewards=(0.0, 10.0), artifacts={"log": f"OSError: {error}"}))
        assert found is not None
        assert "is in `files`: open it beside `__file__`" in found.remedy
    failure = Failure(
        FailureKind.INVALID_OUTPUT, "evaluator_raised", "OSError: No such file or directory: 'points.json'"
    )
    assert "is in `files`" in (describe_seed_failure(problem, Evaluation(failure=failure)) or "")


@pytest.mark.parametrize(
    ("label", "text", "stated"),
    [
        ("log", "mean absolute error 4.5", False),
        ("log", "0 failed tests, cannot be better", False),
        ("log", "MeanSquaredError: 4.5\nError: 0.3", False),
        ("error", "which task is meant?", True),
        ("error", "None", False),
        ("log", "evaluation failed: [Errno 2] No such file or directory: 'a.csv'", True),
        ("log", "skipped: ValueError: no data", True),
        ("log", "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 3", True),
    ],
)
def test_exceptions_and_error_fields_state_a_failure_and_words_do_not(label: str, text: str, stated: bool) -> None:
    texts = {"other metrics": "failed = 3", label: text}
    assert (stated_failure(texts) is not None) == stated


@pytest.mark.parametrize(
    ("text", "tier", "words"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/tmp/a.py'", "B", "Tier B of the sandbox forbids writing"),
        ("OSError: [Errno 1] Operation not permitted: '/home/user/.config/matplotlib'", "B", "install bubblewrap"),
        ("BlockingIOError: [Errno 1] Operation not permitted", "B", "limits.processes"),
        ("OSError: [Errno 30] Read-only file system: '/usr/log'", "A", "use `tempfile`"),
    ],
)
def test_a_write_that_the_sandbox_forbids_is_told_from_a_process(text: str, tier: str, words: str) -> None:
    found = reported_error({"log": text}, tier)
    assert found is not None
    assert words in found.remedy


def test_only_the_worst_value_of_every_reward_makes_it_a_failure() -> None:
    problem, texts = toy_problem(), {"stderr": TRACE}
    worst = Evaluation(rewards=(0.0, 10.0), artifacts=texts)
    found = silent_failure(problem, worst)
    assert found is not None
    assert found.as_failure().by_evaluator
    assert "No module named 'jax'" in found.describe()
    assert silent_failure(problem, Evaluation(rewards=(0.0, 9.9), artifacts=texts)) is None
    without_error = silent_failure(problem, Evaluation(rewards=(0.0, 10.0), artifacts={"stderr": "fine"}))
    assert without_error is not None
    assert without_error.as_failure().by_evaluator
    assert "worst_seed = true" in without_error.describe()
    assert silent_failure(problem.model_copy(update={"worst_seed": True}), worst) is None
    listed = [{"input": [1], "expected": 1, "reward": name} for name in ("x", "y")]
    cases = {"kind": "cases", "evaluator": "", "cases": listed}
    of_cases = Problem.model_validate(problem.model_dump(mode="json") | cases)
    assert silent_failure(of_cases, worst) is None


class Hiding(ToyEvaluator):
    """Catches its own exception and gives every program the worst rewards."""

    def _one(self, program: str) -> Evaluation:
        return Evaluation(rewards=(0.0, 10.0), artifacts={"error": TRACE})


def test_a_run_pauses_before_it_spends_its_budget_on_such_an_evaluator() -> None:
    policy = toy_policy(options={"completions": ["x = 1"]})
    context = RunContext(UUID(int=1), toy_problem(), policy, UUID(int=2), toy_spec(60))
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, Hiding(), build_client), signals)
    progress = store.runs[context.run_id].progress
    assert (progress.state, progress.evaluations) == (RunState.PAUSED, 1)
    assert "No module named 'jax'" in str(progress.reason)
    assert progress.diagnosis["remedy"].startswith("Add the package of jax to `requirements`")
