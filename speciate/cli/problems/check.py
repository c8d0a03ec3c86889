"""Score a problem's seed program on this machine, and measure how much its evaluations differ."""

import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from evaluators.evaluator_factory import open_evaluator
from speciate.cli import output
from speciate.domain.candidate import Evaluation
from speciate.domain.numbers import short_number
from speciate.domain.problem import Problem
from speciate.problems.definition import stray_marker_note
from speciate.problems.loader import with_own_names
from speciate.runs.seed_noise import deviations, noise_advice, varying
from speciate.runs.silent_failure import SilentFailure, describe_seed_failure, silent_failure
from speciate.settings import load_settings

_DEFAULT_REPEATS: Final = 4
_SECONDS: Final = 30.0
"""Time of all repeats, if their number is not given."""


@dataclass(frozen=True, slots=True)
class SeedCheck:
    """Result of scoring a seed program."""

    evaluation: Evaluation | None
    """The evaluation; None if the problem has no seed program, or no sandboxed evaluation."""
    met: tuple[str, ...] = ()
    """Names of the targets it meets."""

    silent: SilentFailure | None = None
    """The failure that the worst value of every reward stands for."""

    @property
    def failed(self) -> bool:
        return self.evaluation is not None and (self.evaluation.failure is not None or self.silent is not None)

    def as_json(self, problem: Problem) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "problem": problem.slug,
            "digest": problem.digest,
            "ok": not self.failed,
            "rewards": self._rewards(problem),
            "targets": list(self.met),
            "failure": None,
            "artifacts": {},
        }
        if self.evaluation is not None:
            facts |= {"tier": self.evaluation.tier, "wall_s": self.evaluation.wall_s}
            facts["artifacts"] = dict(self.evaluation.artifacts)
            silent = None if self.silent is None else self.silent.as_failure()
            if (failure := self.evaluation.failure or silent) is not None:
                facts["failure"] = {"kind": failure.kind.value, "reason": failure.reason, "detail": failure.detail}
        return facts

    def show(self, problem: Problem) -> None:
        output.print_line(f"{problem.slug}: {problem.title}")
        if note := stray_marker_note(problem.seed_program):
            output.print_line(f"note: {note}")
        if self.evaluation is None:
            why = "It has no seed program to score: policies write candidates from scratch."
            if problem.cascade[0].external:
                why = "External evaluators measure everything: try yours on the seed program."
            output.print_line(f"The definition is valid. {why}")
            return
        if (failure := describe_seed_failure(problem, self.evaluation)) is not None:
            output.print_text(failure)
        else:
            self._show_scores(problem, self.evaluation)

    def _show_scores(self, problem: Problem, evaluation: Evaluation) -> None:
        values = self._rewards(problem) or {}
        rows = [(o.name, short_number(values[o.name]), o.aim, o.role.value) for o in problem.objectives]
        output.print_table(("objective", ">seed", "direction", "role"), rows, empty="no objectives")
        output.print_line()
        targets = [("yes" if t.name in self.met else "no", t.name, t.rule) for t in problem.targets]
        output.print_table(("met", "target", "rule"), targets, empty="no targets")
        output.print_line()
        output.print_line(f"Scored in {evaluation.wall_s * 1000:.0f} ms in sandbox tier {evaluation.tier}.")
        if unlock := next((t.name for t in problem.targets if t.unlock and t.name in self.met), None):
            output.print_line(
                f"warning: the seed program already meets {unlock!r}: the problem is unlocked from the start."
            )

    def _rewards(self, problem: Problem) -> dict[str, float] | None:
        if self.evaluation is None or self.evaluation.rewards is None:
            return None
        return dict(zip(problem.space.names, self.evaluation.rewards, strict=True))


def evaluate_seed(problem: Problem, seeds: Sequence[int]) -> list[Evaluation]:
    settings = load_settings()
    with (
        closing(open_evaluator(settings.sandbox, settings)) as evaluator,
        output.console(stderr=True).status("Scoring the seed program …") as status,
    ):
        programs = [problem.seed_program] * len(seeds)
        return evaluator.evaluate(problem, programs, seeds=list(seeds), report=lambda line: status.update(escape(line)))


def score_seed(problem: Problem, path: Path | None = None) -> SeedCheck:
    """Score the seed program of a problem in the configured sandbox tier."""
    if not problem.seed_program or problem.cascade[0].external:
        return SeedCheck(None)
    (evaluation,) = evaluate_seed(problem, [0])
    if path is not None:
        own = partial(with_own_names, problem=problem, path=path)
        failure = evaluation.failure and replace(evaluation.failure, detail=own(evaluation.failure.detail))
        artifacts = {name: own(text) for name, text in evaluation.artifacts.items()}
        evaluation = replace(evaluation, failure=failure, artifacts=artifacts)
    if (last := problem.external_stage) is not None and evaluation.rewards is not None:
        evaluation = replace(evaluation, stopped_at=evaluation.stopped_at or last.name)
    rewards = evaluation.rewards
    mask = 0 if rewards is None else problem.targets_met(rewards, stopped_at=evaluation.stopped_at)
    met = tuple(target.name for i, target in enumerate(problem.targets) if mask >> i & 1)
    return SeedCheck(evaluation, met, silent_failure(problem, evaluation))


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


def measure_noise(problem: Problem, first: Evaluation, repeats: int | None) -> NoiseCheck | None:
    """Evaluate the seed program again: once with the seed of ``first``, 0, then with others, so at least twice.

    Without ``repeats`` it is evaluated up to four times within half a minute. None if that is no time for two, or 0.
    """
    if repeats is None:
        repeats = min(_DEFAULT_REPEATS, int(_SECONDS / max(first.wall_s, 1e-3)))
        if repeats < 2:
            output.print_note("Noise was not measured, since an evaluation takes long: --repeats 4 measures it.")
            return None
    if repeats == 0:
        return None
    repeats = max(repeats, 2)
    again = evaluate_seed(problem, [0, *range(1, repeats)])
    (idle,) = evaluate_seed(problem.model_copy(update={"seed_program": "\n"}), [0])
    return NoiseCheck((first, *again), idle)


def _spread(seconds: Sequence[float]) -> str:
    mean = statistics.fmean(seconds)
    return f"{short_number(mean, 3)} s ± {100 * statistics.stdev(seconds) / mean:.0f} %" if mean > 0 else "0 s"
