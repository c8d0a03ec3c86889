"""A policy alone or with a mutator: the columns of the unlock matrix.

An unlock by a pair counts for neither of its policies alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from speciate.domain.visibility import Visibility, visibility_of
from speciate.schema.policies import PolicyVersion
from speciate.schema.unlocks import PAIR_SEPARATOR, MatrixCell, pair_name
from speciate.storage.catalog import Catalog
from speciate.storage.cursors import every

COMPARED: Final = ("only-a", "only-b", "both", "neither", "not-tried")
"""Which of two competitors reached the target of a problem; ``not-tried`` if one of them has no run on it."""

PairKey = tuple[UUID, UUID | None]


@dataclass(frozen=True)
class PolicyPair:
    policy: PolicyVersion
    mutator: PolicyVersion | None = None

    @property
    def key(self) -> PairKey:
        """The ids under which cells of the matrix name the pair."""
        return self.policy.id, self.mutator.id if self.mutator else None

    @property
    def name(self) -> str:
        return pair_name(self.policy.name, self.mutator.name if self.mutator else None)


def compared(a: int | None, b: int | None) -> str:
    """Return which of ``COMPARED`` applies to two competitors with so many successful runs; None without a run."""
    if a is None or b is None:
        return "not-tried"
    return ("both" if b else "only-a") if a else "only-b" if b else "neither"


def parse_pair(catalog: Catalog, name: str) -> PolicyPair:
    first, _, second = name.partition(PAIR_SEPARATOR)
    policy, mutator = catalog.policy(first), catalog.policy(second) if second else None
    return PolicyPair(policy, None if mutator and mutator.id == policy.id else mutator)


def listed_pairs(catalog: Catalog, cells: Sequence[MatrixCell]) -> dict[PairKey, PolicyPair]:
    """Return the policies, newest first, then every policy with a mutator that occurs in ``cells``.

    Archived policies and versions that runs learned are left out unless they occur in ``cells``.
    """
    used = {policy_id for cell in cells for policy_id in cell.pair}
    policies = {
        policy.id: policy
        for policy in every(partial(catalog.policies, visibility=Visibility.ALL))
        if policy.id in used or (visibility_of(policy) is Visibility.VISIBLE and policy.definition.lineage is None)
    }
    keys = dict.fromkeys(cell.pair for cell in cells if cell.mutator_id)
    mutated = [PolicyPair(policies[a], policies[b]) for a, b in keys if a in policies and b in policies]
    return {pair.key: pair for pair in (*map(PolicyPair, policies.values()), *mutated)}
