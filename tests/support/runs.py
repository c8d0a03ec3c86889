"""Build a toy problem, policies, specifications and an evaluator for tests of runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from itertools import count

from speciate.domain.budget import Budget
from speciate.domain.candidate import Evaluation, Failure, FailureKind, Proposal
from speciate.domain.objective import Direction, Objective
from speciate.domain.policy import Policy, PolicyRole, Sampling
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import Completion, Prompt, Rollout
from speciate.domain.run import RunSpec
from speciate.domain.target import Target
from speciate.domain.values import text_digest

SEED_PROGRAM = "x = 1\ny = 9\n"


def toy_problem(*, seed_program: str = SEED_PROGRAM, confirmations: int = 1) -> Problem:
    """Return a problem whose programs assign two numbers: ``x`` is maximized, ``y`` minimized."""
    return Problem(
        slug="toy",
        title="Two numbers",
        kind=ProblemKind.EVALUATOR,
        objectives=(
            Objective(name="x", range=(0.0, 10.0)),
            Objective(name="y", direction=Direction.MINIMIZE, range=(0.0, 10.0)),
        ),
        targets=(Target(name="half", rule="x >= 5"), Target(name="both", rule="x >= 8 and y <= 2", unlock=True)),
        weights={"x": 1.0, "y": 1.0},
        seed_program=seed_program,
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
        confirmations=confirmations,
    )


def scored_toy_problem() -> Problem:
    """Return the toy problem with an evaluator that works in the sandbox."""
    script = """
import re
def evaluate(candidate, context):
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", candidate.source)[:2])
    return {"x": x, "y": y}
"""
    return toy_problem().model_copy(update={"evaluator": script})


def toy_policy(**changes: object) -> Policy:
    """Return a scripted policy. Tests that provide their own batches never use its client."""
    given = {"slug": "scripted", "kind": "scripted", "sampling": Sampling(max_tokens=64), **changes}
    return Policy.model_validate(given)


def toy_spec(evaluations: int | None = 40, **changes: object) -> RunSpec:
    """Return the specification of a run with one lane and batches of four."""
    budget = changes.pop("budget", None) or Budget(evaluations=evaluations)
    return RunSpec.model_validate(
        {"strategy": "islands_map_elites", "budget": budget, "lanes": 1, "batch": 4, "samples_per_prompt": 2, **changes}
    )


EVERY_OPTION = RunSpec.model_validate(
    {
        "budget": {"evaluations": 41, "tokens": 42, "seconds": 43.5, "dollars": 44.5},
        "strategy": "best_of_n",
        "strategy_options": {"population": 45},
        "engine": "gepa",
        "engine_options": {"merge <b>": "x y"},
        "batch": 46,
        "samples_per_prompt": 47,
        "policy_choice": "ucb",
        "policy_discount": 0.48,
        "seed": 49,
        "learning": {
            "estimator": "entropic",
            "groups": 56,
            "kappa": 57,
            "draws": 58,
            "learning_rate": 0.59,
            "kl": 60.5,
            "lora_rank": 61,
            "steps": 62,
            "staleness": 63,
        },
        "lanes": 51,
        "stop_on_unlock": True,
        "stop_on_plateau": 52,
        "reuse_results": True,
        "final_evaluations": 53,
        "keep_tokens": True,
        "novelty": {"same": "text", "near": 0.54, "shingle": 9, "window": 55},
        "guidance": {"every": 64, "most": 7},
    }
)
"""No option has its default."""


def toy_proposals(*programs: str) -> tuple[Proposal, ...]:
    """Return proposals with the given texts."""
    return tuple(Proposal(p, text_digest(p), PolicyRole.MUTATE, parents=(1,), rollout=0) for p in programs)


def toy_rollout(tokens: int = 0) -> Rollout:
    """Return a rollout with a charge of ``tokens``."""
    return Rollout(PolicyRole.MUTATE, Prompt("system", "user"), Completion("text", tokens), seed=1, answers=4)


def ticking_clock() -> Callable[[], float]:
    """Return a clock in seconds that advances by a millisecond at every call."""
    ticks = count(1)
    return lambda: 1e9 + next(ticks) / 1000


class ToyEvaluator:
    """Evaluates toy programs by reading their two assignments. All other programs fail."""

    tier = "none"

    def __init__(self) -> None:
        self.evaluated: list[str] = []

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Return ``(x, y)`` of every program."""
        self.evaluated.extend(programs)
        return [self._one(program) for program in programs]

    def _one(self, program: str) -> Evaluation:
        try:
            assigned = {
                statement.targets[0].id: float(ast.literal_eval(statement.value))  # type: ignore[attr-defined]
                for statement in ast.parse(program).body
            }
            return Evaluation(rewards=(assigned["x"], assigned["y"]))
        except (SyntaxError, ValueError, KeyError, AttributeError, TypeError) as error:
            return Evaluation(failure=Failure(FailureKind.INVALID_OUTPUT, "not_assigned", str(error)))
