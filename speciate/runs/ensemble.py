"""Choose a policy of an ensemble for each prompt."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from speciate.domain.ensemble import BanditArm, DecayedCounts, PolicyChoice, best_arm
from speciate.domain.policy import PolicyRole
from speciate.ports.work import RunContext, WorkStore
from speciate.runs.progress import RunProgress

COUNTS: Final = ("asked", "judged", "won", "tokens")
"""Statistics of an arm that records include."""
_COUNTED: Final = frozenset({PolicyRole.PROPOSE, PolicyRole.MUTATE})


class PolicyChooser:
    """Chooses policies for the prompts of one batch. Its state is read from the run, so any worker can use it."""

    def __init__(self, context: RunContext, work: WorkStore) -> None:
        """Read the bandit statistics if the choice depends on them."""
        self._context = context
        learns = context.has_ensemble and context.spec.policy_choice is PolicyChoice.UCB
        self._arms: Mapping[str, BanditArm] = work.arms(context.run_id) if learns else {}
        self._waiting: Counter[str] = Counter()

    def pick(self, role: PolicyRole, answers: int, rng: np.random.Generator) -> int:
        """Return the position of a policy among those of a role, for a prompt with a number of answers.

        ``rng`` is used for one draw if weights decide between several policies, else not at all.
        """
        shares = self._context.policies(role)
        if len(shares) == 1:
            return 0
        if self._context.spec.policy_choice is PolicyChoice.WEIGHTS:
            bounds = np.cumsum([share.weight for share in shares])
            return int(np.searchsorted(bounds, rng.random() * bounds[-1], side="right"))
        spec = self._context.spec
        keys = [arm_key(role, position) for position in range(len(shares))]
        arms = [self._arms.get(key, BanditArm()) for key in keys]
        best = best_arm(arms, [self._waiting[key] for key in keys], spec.budget, spec.policy_discount)
        self._waiting[keys[best]] += answers
        return best


def arm_key(role: PolicyRole, position: int) -> str:
    return f"{role.value}:{position}"


def read_arms(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, BanditArm]:
    return {key: _read(counts) for key, counts in stored.items()}


def count_arm(
    progress: RunProgress, context: RunContext, role: PolicyRole, position: int, at: int, **more: int
) -> None:
    """Add to the statistics of an ensemble's policy. ``at`` is the ordinal of the batch."""
    if role not in _COUNTED or not context.has_ensemble:
        return
    key, discount = arm_key(role, position), context.spec.policy_discount
    arm = _read(progress.arms.get(key, {})).plus(**more)
    stored: dict[str, Any] = {name: getattr(arm, name) for name in COUNTS}
    if discount != 1.0:
        answers = {name: count for name, count in more.items() if name != "tokens"}
        stored["decayed"] = asdict((arm.decayed or DecayedCounts()).plus(discount, at, **answers))
    progress.arms[key] = stored


def _read(counts: Mapping[str, Any]) -> BanditArm:
    decayed = counts.get("decayed")
    return BanditArm(**{**counts, "decayed": None if decayed is None else DecayedCounts(**decayed)})
