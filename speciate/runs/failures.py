"""Failures among a run's latest candidates: what prompts say of them, and programs to repair."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from speciate.domain.candidate import FailureKind
from speciate.domain.policy import Policy, PolicyRole
from speciate.ports.work import RunContext, WorkStore
from speciate.prompts.failures import frequent_causes, is_of_program
from speciate.search.strategy import PopulationView, Selection, Strategy

_REPAIRS: Final = 0.25
"""Share of the prompts that ask for a repair while most of the latest candidates fail."""
_ODDS: Final = 0.5
"""Repairs of a failed program otherwise, on average: those of large models are worth a request."""


class RecentFailures:
    """The failures among the latest candidates, as one batch sees them."""

    def __init__(
        self,
        context: RunContext,
        work: WorkStore,
        population: PopulationView,
        strategy: Strategy,
        readers: Sequence[Policy],
    ) -> None:
        """Read the latest candidates, unless no policy reads prompts. Steps of the polisher tell a model nothing."""
        policies = [*readers, *(share.policy for share in context.policies(PolicyRole.PROPOSE))]
        reads = any(policy.reads_prompts for policy in policies)
        latest = [each for each in population.latest() if each.role is not PolicyRole.POLISH] if reads else []
        self.numbers = [each.number for each in latest if each.role is not PolicyRole.SEED]
        self._latest, self._context, self._work = latest, context, work
        failures = [(each, each.failure) for each in latest if each.failure and is_of_program(each.failure)]
        evaluated = [each for each, failure in failures if failure.kind is not FailureKind.REJECTED]
        repairs = strategy.changes_programs and all(policy.reads_prompts for policy in readers)
        large = not any(policy.is_external or policy.prompt_style.is_compact for policy in readers)
        seldom = _ODDS * len(evaluated) / max(1, len(latest)) if large else 0.0
        self._share = _REPAIRS if 2 * len(failures) > len(latest) else seldom
        self._broken = evaluated[:1] if repairs and self._share else []

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """The most frequent causes in one line each."""
        return self._causes(())

    def causes_beside(self, told: Collection[int]) -> tuple[str, ...]:
        """Return causes that the candidates ``told`` do not show, without failures that a later candidate mended."""
        hidden, mended = set[int](), set[int]()
        for i, each in enumerate(self._latest):
            rejected = each.failure is not None and each.failure.kind is FailureKind.REJECTED
            if each.number in told or not mended.isdisjoint([each.number, *each.parents[: int(rejected)]]):
                hidden.add(i)
            if each.rewards is not None:
                mended.update(each.parents[:1])
        return self._causes(hidden)

    def _causes(self, told: Collection[int]) -> tuple[str, ...]:
        def program_of(i: int) -> str:
            number = self._latest[i].number
            return self._work.members(self._context.run_id, [number])[number].program

        return frequent_causes(self._context.problem, [each.failure for each in self._latest], program_of, told)

    def or_repair(self, selection: Selection, rng: np.random.Generator) -> Selection:
        """Return the selection, or at times the newest failed program instead.

        The parent of the selection is then shown beside it, and the child belongs to the failed program's island.
        """
        if not self._broken or selection.role is PolicyRole.POLISH or rng.random() >= self._share:
            return selection
        (broken,) = self._broken
        others = tuple(parent for parent in selection.parents[:1] if parent != broken.number)
        return Selection(PolicyRole.MUTATE, broken.island, (broken.number,), others)
