"""Choose a policy of an ensemble for each prompt."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from speciate.domain.ensemble import BanditArm, DecayedCounts, PolicyChoice, best_arm
from speciate.domain.policy import Policy, PolicyRole
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
        self._unavailable = set[str]()

    def leave_out(self, policy: Policy) -> None:
        """Choose an unavailable policy no more in this batch."""
        self._unavailable.add(policy.digest)

    def available(self, role: PolicyRole) -> list[int]:
        """Return the positions of the policies of a role without those left out."""
        shares = self._context.policies(role)
        return [i for i, share in enumerate(shares) if share.policy.digest not in self._unavailable]

    def pick(self, role: PolicyRole, answers: int, rng: np.random.Generator) -> int:
        """Return the position of a policy among those of a role, for a prompt with a number of answers.

        ``rng`` is used for one draw if weights decide between several policies, else not at all.
        """
        spec, shares, positions = self._context.spec, self._context.policies(role), self.available(role)
        if len(positions) == 1:
            return positions[0]
        if spec.policy_choice is PolicyChoice.WEIGHTS:
            bounds = np.cumsum([shares[position].weight for position in positions])
            return positions[int(np.searchsorted(bounds, rng.random() * bounds[-1], side="right"))]
        # Advice comes from the mutators.
        asked_as = PolicyRole.MUTATE if role is PolicyRole.ADVISE else role
        keys = [arm_key(asked_as, position) for position in positions]
        arms = [self._arms.get(key, BanditArm()) for key in keys]
        best = best_arm(arms, [self._waiting[key] for key in keys], spec.budget, spec.policy_discount)
        self._waiting[keys[best]] += answers
        return positions[best]


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
