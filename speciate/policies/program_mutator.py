"""Edit programs at random, without a model: the baseline that every model must beat.

Answers have the form of a model's (fenced programs, or tagged documents), so that they are parsed the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from pydantic import Field, model_validator

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.files import heading_in
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Completion
from speciate.domain.values import Value, storable
from speciate.policies.kind import STANDALONE, ClientContext, PolicyKind, client_options
from speciate.policies.mutators.children import OperatorRates, child_of
from speciate.policies.mutators.numbers import StepSizes
from speciate.policies.mutators.reading import read_source
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.prompts.fences import SEPARATOR
from speciate.prompts.text import fenced

_ANSWER_END: Final = "</answer>"


class ProgramMutatorOptions(Value):
    """Options of ``program_mutator``; rates are relative to each other.

    Attributes:
        constants: Rate of changed numeric constants; it also grows with their number.
        operators: Rate of replaced operators and comparisons.
        expressions: Rate of replaced expressions.
        statements: Rate of deleted, repeated and swapped statements.
        elements: Rate of deleted, repeated, swapped and moved elements of lists.
        crossover: Probability of recombining two parents if there are two.
        sigma_low: Smallest step of a float, as a share of its value or of the typical value.
        sigma_high: Largest step of a float, likewise.
        inherited: Probability that a step of a float has about the size of the one that wrote it.
        covariance: Probability of moving all floats along the differences of similar programs, if there are any.
        second_edit: Probability of each further edit of a child.
        proposal_edits: Edits of a program that is made from the seed program.
    """

    constants: float = Field(default=1.0, ge=0, le=1000)
    operators: float = Field(default=0.4, ge=0, le=1000)
    expressions: float = Field(default=0.8, ge=0, le=1000)
    statements: float = Field(default=0.4, ge=0, le=1000)
    elements: float = Field(default=0.3, ge=0, le=1000)
    crossover: float = Field(default=0.3, ge=0, le=1)
    sigma_low: float = Field(default=3e-4, gt=0, le=10)
    sigma_high: float = Field(default=0.5, gt=0, le=10)
    inherited: float = Field(default=0.0, ge=0, le=1)
    covariance: float = Field(default=0.0, ge=0, le=1)
    second_edit: float = Field(default=0.15, ge=0, le=0.9)
    proposal_edits: int = Field(default=4, ge=1, le=100)

    @model_validator(mode="after")
    def _steps_are_ordered(self) -> Self:
        if self.sigma_low > self.sigma_high:
            raise ValueError(f"sigma_low is {self.sigma_low}: expected at most sigma_high, {self.sigma_high}")
        return self

    def rates(self, *, heavy: bool) -> OperatorRates:
        """Return the rates; ``heavy`` takes large steps only, for programs that are made from the seed program."""
        low = max(self.sigma_low, self.sigma_high / 10) if heavy else self.sigma_low
        return OperatorRates(
            constants=self.constants,
            operators=self.operators,
            expressions=self.expressions,
            statements=self.statements,
            elements=self.elements,
            crossover=self.crossover,
            covariance=self.covariance,
            steps=StepSizes(low, self.sigma_high, self.inherited),
        )


class ProgramMutator:
    """Client that answers with random edits of the request's parents, or of the seed program; costs no tokens."""

    def __init__(self, policy: Policy, _: ClientContext = STANDALONE) -> None:
        self._options = client_options(policy, ProgramMutatorOptions)
        self._answers = policy.answers_per_rollout
        self._light = self._options.rates(heavy=False)
        self._heavy = self._options.rates(heavy=True)

    def token_ceiling(self, request: SampleRequest) -> int:  # noqa: ARG002 - the port's signature
        return 0

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request from its own seed alone.

        Raises:
            PolicyUnavailableError: A request has neither parents nor a seed program.
        """
        return [self._answer(request) for request in requests]

    def ping(self) -> str:
        return "program_mutator needs no endpoint"

    def _answer(self, request: SampleRequest) -> SampleResult:
        programs = [member.program for member in request.parents] or [request.seed_program]
        if not programs[0].strip():
            raise PolicyUnavailableError(
                "program_mutator only edits programs, and this problem has no seed program.",
                remedy="Add a seed_program to the problem, or use a policy that writes programs from scratch.",
            )
        others = [member.program for member in request.others]
        rng = np.random.default_rng(request.seed)
        scratch = request.role is PolicyRole.PROPOSE and not request.parents
        return SampleResult(tuple(self._completion(programs, others, scratch, rng) for _ in range(request.n)))

    def _completion(
        self, programs: Sequence[str], others: Sequence[str], scratch: bool, rng: np.random.Generator
    ) -> Completion:
        # Every operator maps programs to programs and documents to documents.
        is_python = read_source(programs[0]).is_python
        children = (self._child(programs, others, scratch, rng) for _ in range(self._answers))
        return Completion(f"\n{SEPARATOR}\n".join(_shown(child, is_python=is_python) for child in children))

    def _child(self, programs: Sequence[str], others: Sequence[str], scratch: bool, rng: np.random.Generator) -> str:
        edits = self._options.proposal_edits if scratch else 1
        while rng.random() < self._options.second_edit:
            edits += 1
        return child_of(programs, self._heavy if scratch else self._light, edits, rng, others)


def _shown(program: str, *, is_python: bool) -> str:
    program = storable(program)
    if is_python:
        return fenced(program, "python")
    if _ANSWER_END in program or heading_in(program.lstrip("\n").partition("\n")[0]):  # files must be fenced
        return fenced(program)
    return f"<answer>\n{program}\n{_ANSWER_END}"


KIND: Final = PolicyKind(
    ProgramMutator, "random edits of programs, without a model and an endpoint", reads_prompts=False, immediate=True
)
