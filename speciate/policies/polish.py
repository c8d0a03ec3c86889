"""Polish the numbers of programs, without a model: a numerical optimizer whose steps are candidates of the run."""

from typing import Final

import numpy as np
from pydantic import Field

from speciate.domain.policy import PolicyRole
from speciate.domain.values import Value
from speciate.policies.kind import ANSWERS, LocalClient, PolicyKind
from speciate.policies.mutators.answers import answered
from speciate.policies.mutators.children import child_of
from speciate.policies.mutators.options import ProgramMutatorOptions
from speciate.policies.mutators.polishing import polished, scattered
from speciate.policies.mutators.reading import read_source
from speciate.ports.policy import SampleRequest, SampleResult

_EDITS: Final = ProgramMutatorOptions()
_SKIPPED: Final = 128
"""Bound of the steps left to other requests."""


class PolishOptions(Value):
    step: float = Field(default=0.3, gt=0, le=10)
    """First step of a float, as a share of its value."""


class Polisher(LocalClient[PolishOptions]):
    """Change numbers of the first parent or seed; without numbers edit as ``program_mutator``. Costs no tokens."""

    options_type = PolishOptions

    def _answer(self, request: SampleRequest) -> SampleResult:
        scratch = request.role is PolicyRole.PROPOSE or not request.parents
        program = request.seed_program if scratch else request.parents[0].program
        self._require_program(program)
        children = self._children(program, request, scratch=scratch)
        return SampleResult(answered(children, self._answers, is_python=read_source(program).is_python))

    def _children(self, program: str, request: SampleRequest, *, scratch: bool) -> list[str]:
        count, rng = request.n * self._answers, np.random.default_rng(request.seed)
        if scratch:
            children = [scattered(program, self._options.step, rng) for _ in range(count)]
        else:
            relatives, number, skipped = request.relatives(), request.parents[0].number, request.earlier % _SKIPPED
            children = polished(program, number, relatives, skipped + count, self._options.step, request.seed)[skipped:]
        edited = (child_of([program], _EDITS, 1, rng, heavy=scratch) for _ in range(count))
        return [*(child for child in children if child != program), *edited][:count]


KIND: Final = PolicyKind(
    Polisher, PolishOptions, "a numerical optimizer of the numbers in programs, without a model", fields=ANSWERS
)
