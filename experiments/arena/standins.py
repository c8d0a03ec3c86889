"""Stand-ins of several characters for a model: what they answer depends on the request's programs and seed alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from experiments.arena.problems import InProcessEvaluator, problem_of
from speciate.domain.policy import Policy
from speciate.domain.rollout import Completion
from speciate.policies.mutators.children import child_of
from speciate.policies.mutators.options import ProgramMutatorOptions
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.text import fenced

Child = Callable[[Sequence[str], SampleRequest, np.random.Generator], str]

_SMALL: Final = ProgramMutatorOptions()
_CONSTANTS: Final = ProgramMutatorOptions(operators=0, expressions=0, statements=0, elements=0, crossover=0)
_FAILING: Final = 0.6
"""Share of large rewrites that are no working program."""


def _small(programs: Sequence[str], request: SampleRequest, rng: np.random.Generator) -> str:
    """Edit the program once or twice, as ``program_mutator`` does."""
    scratch = not request.parents
    edits = _SMALL.proposal_edits if scratch else 1 + int(rng.random() < _SMALL.second_edit)
    return child_of(programs, _SMALL, edits, rng, heavy=scratch)


def _rewrites(programs: Sequence[str], request: SampleRequest, rng: np.random.Generator) -> str:  # noqa: ARG001
    """Edit the program in many places, by large steps; most of the results fail."""
    if rng.random() < _FAILING:
        return f"{programs[0]}\nraise RuntimeError('a rewrite that does not work')\n"
    return child_of(programs, _SMALL, 3 + int(rng.geometric(0.3)), rng, heavy=True)


def _constants(programs: Sequence[str], request: SampleRequest, rng: np.random.Generator) -> str:  # noqa: ARG001
    return child_of(programs, _CONSTANTS, 1, rng)


class _Reader:
    """Edits better the more the prompt shows: the best of several edits, one for each distinct program shown."""

    def __init__(self, slug: str) -> None:
        self._problem, self._evaluator = problem_of(slug), InProcessEvaluator(slug)

    def __call__(self, programs: Sequence[str], request: SampleRequest, rng: np.random.Generator) -> str:
        shown = request.prompt.user.count("### Program ")
        children = [_small(programs, request, rng) for _ in range(1 + min(3, shown))]
        return max(children, key=self._worth)

    def _worth(self, program: str) -> float:
        rewards = self._evaluator.evaluation(self._problem, program).rewards
        return -np.inf if rewards is None else float(self._problem.space.normalise([rewards]).mean())


CHARACTERS: Final = ("small", "rewrites", "constants", "reader")
"""``small``: one or two small edits. ``rewrites``: many large edits, six of ten answers fail. ``constants``: numbers
only. ``reader``: the best of as many small edits as the prompt shows programs, at most four."""
_CHILDREN: Final[dict[str, Child]] = {"small": _small, "rewrites": _rewrites, "constants": _constants}


class StandIn:
    """Client of a stand-in."""

    def __init__(self, character: str, slug: str) -> None:
        self._child: Child = _Reader(slug) if character == "reader" else _CHILDREN[character]

    def token_ceiling(self, request: SampleRequest) -> int:  # noqa: ARG002 - the port's signature
        return 0

    def ping(self) -> str:
        return "a stand-in"

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: SampleRequest) -> SampleResult:
        programs = [member.program for member in request.parents] or [request.seed_program]
        rng = np.random.default_rng(request.seed)
        texts = [fenced(self._child(programs, request, rng), "python") for _ in range(request.n)]
        return SampleResult(tuple(Completion(text) for text in texts))


def policy_of(character: str) -> Policy:
    return Policy(slug=f"stand-in-{character}", kind="program_mutator")
