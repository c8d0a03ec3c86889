"""Predictions about training arms, declared before they are trained: their training, evaluation, tests and tables."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from rich.console import Console

from experiments.reproduction.answers import AnswerPool, LocalPolicy, independent
from experiments.reproduction.arms import TaskPlan, TrainingArm
from experiments.reproduction.evidence import ArmOutcome, Bools, Evidence, Mode, outcome_of, problems_of
from experiments.reproduction.report import p_text, spread
from speciate.policies.manifest import read_manifest, weights_digest
from speciate.tournaments.statistics.methods import MethodTest, compare_methods
from speciate.tournaments.statistics.significance import holm
from speciate.training.tasks import GENERATED

_Unit = TypeVar("_Unit")

VANISHED: Final = 0.033
"""Differences up to this count as vanished, whatever their p: a third of VPO's published lead on programs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A difference between two arms, predicted before any of the new arms was trained.

    Attributes:
        text: The prediction.
        a: Arm whose share of targets met is the minuend.
        b: The subtrahend.
        positive: Whether the difference is predicted to be positive; otherwise at most ``VANISHED``.
        within: Answers within which a target must be met; None for those of the plan.
    """

    text: str
    a: str
    b: str
    positive: bool = True
    within: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Arms of one task, paired by training seed, and what was predicted about them."""

    plan: TaskPlan
    seeds: tuple[int, ...]
    arms: tuple[TrainingArm, ...]
    predictions: tuple[Prediction, ...]
    evidence: Evidence

    @property
    def complete(self) -> list[int]:
        """The training seeds with outcomes of all arms."""
        return [seed for seed in self.seeds if all(self.evidence.has(self.plan, arm, seed) for arm in self.arms)]

    def verdicts(self) -> str:
        """Return the table of predictions: exact sign-flip test over training seeds, Holm over the predictions."""
        labels, seeds = {arm.name: arm.label for arm in self.arms}, self.complete
        tests = {prediction: self._test(prediction, seeds) for prediction in self.predictions}
        adjusted = holm([test.p_value for test in tests.values()]).tolist()
        rows = [
            "| prediction | arms | targets met | difference, 95 % interval | seeds ahead | p | Holm p | |",
            "|---" * 8 + "|",
        ]
        for (prediction, test), p in zip(tests.items(), adjusted, strict=True):
            holds = test.difference > 0 and p < 0.05 if prediction.positive else test.difference <= VANISHED
            verdict = "holds" if holds else "**does not hold**"
            if len(seeds) < len(self.seeds):
                verdict += ", so far"
            interval = (
                "" if test.low is None or test.high is None else f" [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
            )
            cells = (
                prediction.text,
                f"{labels[prediction.a]} − {labels[prediction.b]}",
                f"{100 * np.mean(test.rates_a):.1f} % : {100 * np.mean(test.rates_b):.1f} %",
                f"{100 * test.difference:+.1f} %{interval}",
                f"{test.wins} of {len(seeds)}",
                p_text(test.p_value),
                p_text(p),
                verdict,
            )
            rows.append(f"| {' | '.join(cells)} |")
        return "\n".join(rows)

    def _test(self, prediction: Prediction, seeds: Sequence[int]) -> MethodTest:
        within = prediction.within or self.plan.within
        a, b = ([self._met(name, seed, within) for seed in seeds] for name in (prediction.a, prediction.b))
        return compare_methods(np.array(a, float), np.array(b, float), np.random.default_rng(0), paired=True)

    def _met(self, name: str, seed: int, within: int) -> Bools:
        arm = next(arm for arm in self.arms if arm.name == name)
        return self._outcome(arm, seed).met["independent"].within(within)

    def _outcome(self, arm: TrainingArm, seed: int) -> ArmOutcome:
        outcome = self.evidence.read(self.plan, arm, seed)
        assert outcome is not None  # noqa: S101 - only complete seeds are read
        return outcome

    def table(self) -> str:
        """Return what the arms reached, seed by seed."""
        seeds = self.complete
        heads = ("arm", "met within 30", "within 90", "best@1", "diversity, valid", "entropy", "tokens of 30")
        rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for arm in self.arms:
            outcomes = [self._outcome(arm, seed) for seed in seeds]
            met = [outcome.met["independent"] for outcome in outcomes]
            measured = [outcome.measured for outcome in outcomes]
            cells = (
                spread([float(hits.within(30).sum()) for hits in met], 0),
                spread([float(hits.within(90).sum()) for hits in met], 0),
                f"{np.mean([each.best[0] for each in measured]):.3f}",
                f"{np.mean([each.diversity_valid for each in measured]):.2f}",
                f"{np.mean([each.entropy for each in measured]):.2f}",
                f"{np.mean([each.tokens for each in measured]):.0f}",
            )
            rows.append(f"| {arm.label} | {' | '.join(cells)} |")
        intro = (
            f"Targets met of {self.plan.problems * len(self.plan.targets)}, independent answers as trained: the mean"
            f" over training runs, with the runs of seeds {', '.join(map(str, seeds))} in brackets."
        )
        return f"{intro}\n\n" + "\n".join(rows)


def do_all(units: Iterable[_Unit], work: Callable[[_Unit], str], jobs: int) -> None:
    """Do pieces of work in processes of one thread each, in order; print what each returns."""
    console = Console()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes below, which have not imported numpy yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        begun = [pool.submit(work, unit) for unit in units]
        for done in as_completed(begun):
            console.print(done.result(), markup=False)


def evaluate(evidence: Evidence, plan: TaskPlan, arm: TrainingArm, seed: int, folder: Path) -> None:
    """Sample independent answers of a trained arm to the held-out problems; store the outcome."""
    task, problems = GENERATED[plan.task], problems_of(plan)
    pools: dict[Mode, AnswerPool] = {
        "independent": independent(LocalPolicy(folder), task, problems, plan.answers, seed)
    }
    evidence.keep(plan, arm, outcome_of(plan, arm, seed, read_manifest(folder), weights_digest(folder), pools))
