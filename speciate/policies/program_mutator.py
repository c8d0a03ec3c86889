"""Edit programs at random, without a model: the baseline that every model must beat.

Answers have the form of a model's (fenced programs, or tagged documents), so that they are parsed the same way.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.policies.kind import ANSWERS, LocalClient, PolicyKind
from speciate.policies.mutators.answers import answered
from speciate.policies.mutators.children import child_of
from speciate.policies.mutators.options import ProgramMutatorOptions
from speciate.policies.mutators.reading import read_source
from speciate.ports.policy import SampleRequest, SampleResult


class ProgramMutator(LocalClient[ProgramMutatorOptions]):
    """Client that answers with random edits of the request's parents, or of the seed program; costs no tokens."""

    options_type = ProgramMutatorOptions

    def _answer(self, request: SampleRequest) -> SampleResult:
        programs = [member.program for member in request.parents] or [request.seed_program]
        self._require_program(programs[0])
        rng = np.random.default_rng(request.seed)
        scratch = request.role is PolicyRole.PROPOSE and not request.parents
        children = [self._child(programs, scratch, rng) for _ in range(request.n * self._answers)]
        # Every operator maps programs to programs and documents to documents.
        return SampleResult(answered(children, self._answers, is_python=read_source(programs[0]).is_python))

    def _child(self, programs: Sequence[str], scratch: bool, rng: np.random.Generator) -> str:
        edits = self._options.proposal_edits if scratch else 1
        while rng.random() < self._options.second_edit:
            edits += 1
        return child_of(programs, self._options, edits, rng, heavy=scratch)


KIND: Final = PolicyKind(
    ProgramMutator, ProgramMutatorOptions, "random edits of programs, without a model and an endpoint", fields=ANSWERS
)
