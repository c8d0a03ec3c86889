"""Scoring a problem's seed program once on this machine, to see that the problem works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluators.choose import open_broker
from speciate.cli import output
from speciate.domain.candidate import Evaluation
from speciate.domain.objective import Objective
from speciate.domain.problem import Case, Problem, ProblemKind
from speciate.domain.target import Target
from speciate.settings import load_settings


@dataclass(frozen=True, slots=True)
class SeedCheck:
    """What came of scoring a seed program.

    Attributes:
        evaluation: Its result; None when the problem has no seed program.
        met: Names of the targets that it meets.
    """

    evaluation: Evaluation | None
    met: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether there is a seed program and it could not be scored."""
        return self.evaluation is not None and self.evaluation.failure is not None

    def as_json(self, problem: Problem) -> dict[str, Any]:
        """Return it as JSON values."""
        found: dict[str, Any] = {
            "problem": problem.slug,
            "digest": problem.digest,
            "ok": not self.failed,
            "rewards": self._rewards(problem),
            "targets": list(self.met),
            "failure": None,
            "artifacts": {},
        }
        if self.evaluation is not None:
            found |= {"tier": self.evaluation.tier, "wall_s": self.evaluation.wall_s}
            found["artifacts"] = dict(self.evaluation.artifacts)
            if (failure := self.evaluation.failure) is not None:
                found["failure"] = {"kind": failure.kind.value, "reason": failure.reason, "detail": failure.detail}
        return found

    def show(self, problem: Problem) -> None:
        """Print it for people."""
        output.say(f"{problem.slug}: {problem.title}")
        if self.evaluation is None:
            output.say("The definition is valid. It has no seed program to score: candidates start from nothing.")
            return
        if (failure := self.evaluation.failure) is not None:
            # Most of these are about the script that scores, not about what it is given.
            script = failure.reason == "invalid_rewards" or failure.reason.startswith("evaluator_")
            failing = "the evaluator fails on the seed program" if script else "the seed program fails"
            output.say(f"The definition is valid, but {failing}: {failure.kind.value} ({failure.reason})")
            if failure.detail:
                output.raw(failure.detail)
            for name, text in self.evaluation.artifacts.items():
                output.say(f"--- {name}")
                output.raw(text)
            return
        values = self._rewards(problem) or {}
        rows = [(o.name, f"{values[o.name]:.6g}", o.direction.value, o.role.value) for o in problem.objectives]
        output.table(("objective", ">seed", "direction", "role"), rows, empty="no objectives")
        output.say()
        targets = [("yes" if t.name in self.met else "no", t.name, t.rule) for t in problem.targets]
        output.table(("met", "target", "rule"), targets, empty="no targets")
        output.say()
        output.say(f"Scored in {self.evaluation.wall_s * 1000:.0f} ms under tier {self.evaluation.tier}.")
        if unlock := next((t.name for t in problem.targets if t.unlock and t.name in self.met), None):
            output.say(f"warning: the seed program meets {unlock!r} already: the problem is unlocked from the start.")

    def _rewards(self, problem: Problem) -> dict[str, float] | None:
        if self.evaluation is None or self.evaluation.rewards is None:
            return None
        return dict(zip(problem.space.names, self.evaluation.rewards, strict=True))


def score_seed(problem: Problem) -> SeedCheck:
    """Score the seed program of a problem under the tier of the settings.

    Raises:
        EvaluatorUnavailableError: No process can be started.
        ConfigurationError: There is no such tier.
    """
    if not problem.seed_program:
        return SeedCheck(None)
    broker = open_broker(load_settings().sandbox)
    try:
        evaluation = broker.evaluate(problem, [problem.seed_program], seeds=[0])[0]
    finally:
        broker.close()
    rewards = evaluation.rewards
    mask = 0 if rewards is None else problem.targets_met(rewards, stopped_at=evaluation.stopped_at)
    return SeedCheck(evaluation, tuple(target.name for i, target in enumerate(problem.targets) if mask >> i & 1))


def tiny_problem() -> Problem:
    """Return a problem whose seed program must score, to see that programs can be scored at all."""
    return Problem(
        slug="tiny",
        title="Adding one",
        kind=ProblemKind.CASES,
        objectives=(Objective(name="right"),),
        targets=(Target(name="all_right", rule="right >= 1", unlock=True),),
        seed_program="def solve(number):\n    return number + 1\n",
        cases=(Case(input=[1], expected=2),),
    )
