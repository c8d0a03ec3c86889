"""A policy alone or with a mutator: the columns of the unlock matrix.

An unlock by a pair counts for neither of its policies alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from speciate.domain.visibility import Visibility, visibility_of
from speciate.schema.policies import PolicyVersion
from speciate.schema.unlocks import PAIR_SEPARATOR, MatrixCell, pair_name
from speciate.storage.catalog import Catalog
from speciate.storage.cursors import every


@dataclass(frozen=True)
class PolicyPair:
    """The policies of a run."""

    policy: PolicyVersion
    mutator: PolicyVersion | None = None

    @property
    def key(self) -> tuple[UUID, UUID | None]:
        """The ids under which cells of the matrix name the pair."""
        return self.policy.id, self.mutator.id if self.mutator else None

    @property
    def name(self) -> str:
        return pair_name(self.policy.name, self.mutator.name if self.mutator else None)


def parse_pair(catalog: Catalog, name: str) -> PolicyPair:
    """Return the pair with this name."""
    first, _, second = name.partition(PAIR_SEPARATOR)
    policy, mutator = catalog.policy(first), catalog.policy(second) if second else None
    return PolicyPair(policy, None if mutator and mutator.id == policy.id else mutator)


def listed_pairs(catalog: Catalog, cells: Sequence[MatrixCell]) -> dict[tuple[UUID, UUID | None], PolicyPair]:
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
