"""Choosing a policy for every prompt of a run that has several for a role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import numpy as np

from speciate.domain.ensemble import Arm, Choice, best_arm
from speciate.domain.policy import PolicyRole
from speciate.ports.work import RunContext, WorkStore
from speciate.runs.progress import Progress

_COUNTED: Final = frozenset({PolicyRole.PROPOSE, PolicyRole.MUTATE})


class Chooser:
    """Chooses for the prompts of one batch. What it goes by is read from the run, so that any worker may choose."""

    def __init__(self, context: RunContext, work: WorkStore) -> None:
        """Read what the policies have done so far, where the choice depends on it."""
        self._context = context
        learns = context.has_ensemble and context.spec.policy_choice is Choice.UCB
        self._arms: Mapping[str, Arm] = work.arms(context.run_id) if learns else {}
        self._waiting: Counter[str] = Counter()

    def pick(self, role: PolicyRole, answers: int, rng: np.random.Generator) -> int:
        """Return the position, among the role's policies, of the one to ask for some answers.

        Args:
            role: What it is asked for.
            answers: How many answers.
            rng: Drawn from once where weights decide between several policies, and not at all otherwise.
        """
        shares = self._context.shares(role)
        if len(shares) == 1:
            return 0
        if self._context.spec.policy_choice is Choice.WEIGHTS:
            bounds = np.cumsum([share.weight for share in shares])
            return int(np.searchsorted(bounds, rng.random() * bounds[-1], side="right"))
        keys = [arm_key(role, position) for position in range(len(shares))]
        known = [self._arms.get(key, Arm()) for key in keys]
        chosen = best_arm(known, [self._waiting[key] for key in keys], self._context.spec.budget)
        self._waiting[keys[chosen]] += answers
        return chosen


def arm_key(role: PolicyRole, position: int) -> str:
    """Return the name under which a run counts what a policy did in a role."""
    return f"{role.value}:{position}"


def read_arms(stored: Mapping[str, Mapping[str, int]]) -> dict[str, Arm]:
    """Return the arms that a run has counted."""
    return {key: Arm(**counts) for key, counts in stored.items()}


def count_arm(progress: Progress, context: RunContext, role: PolicyRole, position: int, **more: int) -> None:
    """Add to what a policy did, in a run with an ensemble."""
    if role not in _COUNTED or not context.has_ensemble:
        return
    key = arm_key(role, position)
    progress.arms[key] = asdict(Arm(**progress.arms.get(key, {})).plus(**more))
