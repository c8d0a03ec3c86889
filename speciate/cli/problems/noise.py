"""Measure how much evaluations of a seed program differ, before anything runs."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from speciate.cli import output
from speciate.domain.candidate import Evaluation
from speciate.domain.numbers import short_number
from speciate.domain.problem import Problem
from speciate.runs.seed_noise import deviations, noise_advice, varying

DEFAULT_REPEATS: Final = 4
_SECONDS: Final = 30.0
"""Time of all repeats, if their number is not given."""

Evaluate = Callable[[Problem, Sequence[int]], Sequence[Evaluation]]
"""Evaluates the seed program of a problem once with each seed."""


@dataclass(frozen=True, slots=True)
class NoiseCheck:
    """What evaluations of a seed program measured. The first two have the same seed; the first starts the sandbox."""

    evaluations: tuple[Evaluation, ...]
    idle: Evaluation
    """The evaluation of an empty program."""

    @property
    def failed(self) -> int:
        return sum(each.rewards is None for each in self.evaluations)

    @property
    def by_machine(self) -> bool:
        """True if evaluations with the same seed differ, so that the machine has a part in it."""
        return self.evaluations[0].rewards != self.evaluations[1].rewards

    def as_json(self, problem: Problem) -> dict[str, Any]:
        names = problem.space.names
        return {
            "evaluations": len(self.evaluations),
            "failed": self.failed,
            "deviations": None if self.failed else dict(zip(names, deviations(self.evaluations), strict=True)),
            "same_seed_differs": self.by_machine,
            "wall_s": [each.wall_s for each in self.evaluations],
            "cpu_s": [each.cpu_s for each in self.evaluations],
            "empty_program": {
                "wall_s": self.idle.wall_s,
                "rewards": None if self.idle.rewards is None else dict(zip(names, self.idle.rewards, strict=True)),
            },
        }

    def show(self, problem: Problem) -> None:
        count = len(self.evaluations)
        if self.failed:
            output.print_line(f"warning: {self.failed} of {count} evaluations of the seed program failed.")
            return
        measured, advice = varying(problem, self.evaluations), noise_advice(problem, self.evaluations)
        for objective, size in () if advice else measured:  # the advice names them
            output.print_line(f"{objective.name} varies by {size} in {count} evaluations.")
        if measured:
            seeds = "also with the same seed, so that the machine or fresh random numbers are part of it"
            output.print_line(f"They differ {seeds if self.by_machine else 'by their seeds alone'}.")
        output.print_line(
            f"Wall time {_spread([each.wall_s for each in self.evaluations[1:]])},"
            f" processor time {_spread([each.cpu_s for each in self.evaluations[1:]])};"
            f" an empty program takes {short_number(self.idle.wall_s, 3)} s."
        )
        if self.idle.rewards is not None:
            scores = dict(zip(problem.space.names, self.idle.rewards, strict=True))
            output.print_line(f"warning: an empty program is no failure, it scores {output.format_rewards(scores)}.")
        if advice:
            output.print_line(advice)


def measure_noise(problem: Problem, first: Evaluation, repeats: int | None, evaluate: Evaluate) -> NoiseCheck | None:
    """Evaluate the seed program again: once with the seed of ``first``, 0, then with others, so at least twice.

    Without ``repeats`` it is evaluated up to four times within half a minute. None if that is no time for two, or 0.
    """
    if repeats is None:
        repeats = min(DEFAULT_REPEATS, int(_SECONDS / max(first.wall_s, 1e-3)))
        if repeats < 2:
            output.print_note("Noise was not measured, since an evaluation takes long: --repeats 4 measures it.")
            return None
    if repeats == 0:
        return None
    repeats = max(repeats, 2)
    again = evaluate(problem, [0, *range(1, repeats)])
    (idle,) = evaluate(problem.model_copy(update={"seed_program": "\n"}), [0])
    return NoiseCheck((first, *again), idle)


def _spread(seconds: Sequence[float]) -> str:
    mean = statistics.fmean(seconds)
    return f"{short_number(mean, 3)} s ± {100 * statistics.stdev(seconds) / mean:.0f} %" if mean > 0 else "0 s"
