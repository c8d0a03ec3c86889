"""Failures among a run's latest candidates: what prompts say of them, and programs to repair."""

from __future__ import annotations

from collections.abc import Sequence
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
    """The failures among the latest candidates, as one batch sees them: ``causes`` are the most frequent ones."""

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
        self.causes = frequent_causes(
            context.problem,
            [each.failure for each in latest],
            lambda i: work.members(context.run_id, [latest[i].number])[latest[i].number].program,
        )
        failures = [(each, each.failure) for each in latest if each.failure and is_of_program(each.failure)]
        evaluated = [each for each, failure in failures if failure.kind is not FailureKind.REJECTED]
        repairs = strategy.changes_programs and all(policy.reads_prompts for policy in readers)
        large = not any(policy.is_external or policy.prompt_style.is_compact for policy in readers)
        seldom = _ODDS * len(evaluated) / max(1, len(latest)) if large else 0.0
        self._share = _REPAIRS if 2 * len(failures) > len(latest) else seldom
        self._broken = evaluated[:1] if repairs and self._share else []

    def or_repair(self, selection: Selection, rng: np.random.Generator) -> Selection:
        """Return the selection, or at times the newest failed program instead.

        The parent of the selection is then shown beside it, and the child belongs to the failed program's island.
        """
        if not self._broken or selection.role is PolicyRole.POLISH or rng.random() >= self._share:
            return selection
        (broken,) = self._broken
        others = tuple(parent for parent in selection.parents[:1] if parent != broken.number)
        return Selection(PolicyRole.MUTATE, broken.island, (broken.number,), others)
