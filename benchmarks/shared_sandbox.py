"""Answers of trainings scored a second: with a sandbox for each training, and with one for all.

``python -m benchmarks shared-sandbox``: each training scores the answers of one update of the plan for a GPU in
``experiments/real_model``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

from benchmarks.parts import median, show
from experiments.real_model.plan import PLANS, SET
from experiments.real_model.shared_sandbox import opened_sandbox, served_sandbox
from speciate.settings import Settings
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.task import Split

TRAININGS: Final = (2, 7, 14)
REPEATS: Final = 3
PLAN: Final = PLANS["gpu"]
ANSWERS: Final = PLAN.sets * SET
"""Answers to a prompt in an update."""


def run(_: Settings) -> None:
    """Measure and print the table."""
    rows = []
    for count in TRAININGS:
        own, shared = [], []
        for _ in range(REPEATS):
            own.append(_answers_per_second(count, {}))
            with served_sandbox() as environment:
                shared.append(_answers_per_second(count, environment))
        ratios = [b / a for a, b in zip(own, shared, strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        rows.append((count, f"{median(own):.0f}", f"{median(shared):.0f}", spread))
    show(
        f"Trainings at once: answers scored a second, one update of {PLAN.prompts} problems × {ANSWERS} answers each,"
        f" median of {REPEATS} (least and greatest ratio)",
        ["trainings", "a sandbox each", "one sandbox", "ratio"],
        rows,
        f"{os.cpu_count()} cores. Processes and sandboxes are ready before the time begins.",
    )


def _answers_per_second(count: int, environment: Mapping[str, str]) -> float:
    """Return answers scored per second of all trainings, which begin together."""
    trainings = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shared_sandbox", str(seed)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(count)
    ]
    try:
        for training in trainings:
            _await(training, "ready")
        begun = time.perf_counter()
        for training in trainings:
            assert training.stdin is not None
            training.stdin.write("go\n")
            training.stdin.flush()
        for training in trainings:
            _await(training, "done")
        return count * PLAN.prompts * ANSWERS / (time.perf_counter() - begun)
    finally:
        for training in trainings:
            training.communicate()


def _await(training: subprocess.Popen[str], word: str) -> None:
    assert training.stdout is not None
    if training.stdout.readline().strip() != word:
        raise RuntimeError(f"a training ended before it was {word}")


def _train(seed: int) -> None:
    """Score one update when told to."""
    task = ChoicesTask()
    start = 1_000 + seed * PLAN.prompts
    drawn = list(task.with_solutions(Split.TRAIN, PLAN.prompts, start=start))
    batch = [
        (problem, [f"{programs[i % len(programs)]}\n# {seed} {i}\n" for i in range(ANSWERS)])
        for problem, programs in drawn
    ]
    with opened_sandbox() as sandbox:
        scored = ChoicesTask(evaluator=sandbox)
        scored.score(batch[:1])
        _say("ready")
        sys.stdin.readline()
        scored.score(batch)
        _say("done")
        sys.stdin.readline()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _train(int(sys.argv[1]))
