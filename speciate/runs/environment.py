"""Prompts and scores of a problem outside a run, for environments of reinforcement learning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from speciate.domain.candidate import Failure
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.ports.evaluator import EvaluatorClient
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.runs.evaluation import reject_out_of_scale

_POLICY: Final = Policy(slug="environment", kind="scripted")
"""One program per completion, written in full."""


@dataclass(frozen=True, slots=True)
class CompletionScore:
    # For each objective of role ``objective`` the reward normalized by its range, higher is better: 0 at or beyond the
    # worst end, 1 at the best end. All are 0 if the completion fails or violates a constraint.
    rewards: dict[str, float]
    measured: dict[str, float]  # rewards of all objectives in the author's units; empty if the completion fails
    feasible: bool  # true if no constraint is violated
    unlocked: bool  # true if the unlock target is met. It is not confirmed by further evaluations.
    failure: str | None  # kind, reason and detail of the failure, or None


def environment_prompts(problem: Problem, count: int) -> Iterator[Prompt]:
    """Yield at most ``count`` distinct prompts for a first program; they differ in wording.

    A problem with a single wording has one prompt.
    """
    digests: set[str] = set()
    for seed in range(count):
        prompt = build_prompt(problem, PolicyRole.PROPOSE, (), (), _POLICY, np.random.default_rng(seed))
        if prompt.digest not in digests:
            digests.add(prompt.digest)
            yield prompt


def score_completion(problem: Problem, completion: str, evaluator: EvaluatorClient) -> CompletionScore:
    """Evaluate the program of a completion as a run evaluates it, with the evaluation seed 0."""
    answer = parse_completion(completion, problem=problem, policy=_POLICY, parent=None)[0]
    if answer.failure is not None:
        return _failed(problem, answer.failure)
    (result,) = evaluator.evaluate(problem, [answer.program], seeds=[0])
    result = reject_out_of_scale(problem, {0: result})[0]
    if result.rewards is None:
        return _failed(problem, result.failure)
    space = problem.space
    feasible = not space.violation([result.rewards])[0]
    normalized = space.normalise([result.rewards])[0].tolist()
    met = problem.targets_met(result.rewards, stopped_at=result.stopped_at)
    return CompletionScore(
        rewards={
            objective.name: max(0.0, value) if feasible else 0.0
            for objective, value in zip(space.selected, normalized, strict=True)
        },
        measured=dict(zip(space.names, result.rewards, strict=True)),
        feasible=feasible,
        unlocked=any(target.unlock and met >> i & 1 for i, target in enumerate(problem.targets)),
        failure=None,
    )


def _failed(problem: Problem, failure: Failure | None) -> CompletionScore:
    text = "" if failure is None else f"{failure.kind.value} ({failure.reason}): {failure.detail}"
    rewards = {objective.name: 0.0 for objective in problem.space.selected}
    return CompletionScore(rewards, {}, feasible=False, unlocked=False, failure=text)
