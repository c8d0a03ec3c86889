"""All trainings of the experiment on a pretrained model share one sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

import pytest

from evaluators.evaluator_factory import open_evaluator
from experiments.real_model import shared_sandbox
from experiments.real_model.shared_sandbox import SharedSandbox, opened_sandbox, served_sandbox
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.task import Split

# Scores the three right programs of five problems, and prints the tier, the scores, and how many children it has.
TRAINING = """
import psutil
from experiments.real_model.shared_sandbox import opened_sandbox
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.task import Split
with opened_sandbox() as sandbox:
    batch = list(ChoicesTask().with_solutions(Split.TRAIN, 5))
    scores = ChoicesTask(evaluator=sandbox).score(batch)
    print(sandbox.tier, scores == [[(1, 0, 0), (0, 1, 0), (0, 0, 1)]] * 5, len(psutil.Process().children()))
"""


def test_several_trainings_share_the_sandbox_and_have_none_of_their_own() -> None:
    with served_sandbox() as environment, closing(open_evaluator()) as own:
        trainings = [
            subprocess.Popen(
                [sys.executable, "-c", TRAINING], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        assert [training.communicate(timeout=60)[0] for training in trainings] == [f"{own.tier} True 0\n"] * 3


def test_a_training_that_outlives_the_command_ends_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_sandbox() as environment:
        [(name, path)] = environment.items()
    monkeypatch.setenv(name, path)
    with opened_sandbox() as sandbox, pytest.raises(EvaluatorUnavailableError, match=r"Start `run` again\.$"):
        _ = sandbox.tier


class Broken:
    """An evaluator whose sandbox is gone."""

    tier = "A"

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        raise EvaluatorUnavailableError("the sandbox does not start.", remedy="Install bubblewrap.")

    def close(self) -> None:
        pass


def test_an_error_of_the_sandbox_reaches_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sandbox, "open_evaluator", Broken)
    (problem, programs), *_ = ChoicesTask().with_solutions(Split.TRAIN, 1)
    with served_sandbox() as environment:
        sandbox = SharedSandbox(*environment.values())
        for _ in range(2):
            with pytest.raises(EvaluatorUnavailableError) as raised:
                sandbox.evaluate(problem, programs, seeds=[0, 1, 2])
            assert str(raised.value) == "the sandbox does not start. Install bubblewrap."
            assert raised.value.remedy == "Install bubblewrap."


def test_a_defect_of_the_sandbox_is_not_taken_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sandbox, "open_evaluator", Broken)
    monkeypatch.delattr(Broken, "tier")
    with served_sandbox() as environment, pytest.raises(EvaluatorUnavailableError, match=r"AttributeError: .*'tier'"):
        _ = SharedSandbox(*environment.values()).tier
