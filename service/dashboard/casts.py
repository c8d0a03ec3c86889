"""Who is asked in runs: a policy alone, or with a mutator. What two reach together is the record of neither."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.unlocks import WITH, MatrixCell, together
from speciate.storage.catalog import Catalog
from speciate.storage.cursors import every


@dataclass(frozen=True)
class Cast:
    """Who is asked in runs.

    Attributes:
        policy: Who proposes.
        mutator: Who changes parents, where that is somebody else.
    """

    policy: PolicyVersion
    mutator: PolicyVersion | None = None

    @property
    def key(self) -> tuple[UUID, UUID | None]:
        """The ids by which cells of the matrix name them."""
        return self.policy.id, self.mutator.id if self.mutator else None

    @property
    def name(self) -> str:
        """What they are called; ``named`` reads it."""
        return together(self.policy.name, self.mutator.name if self.mutator else None)


def named(catalog: Catalog, name: str) -> Cast:
    """Return who is called so.

    Raises:
        NotFoundError: A policy is unknown.
    """
    first, _, second = name.partition(WITH)
    policy, mutator = catalog.policy(first), catalog.policy(second) if second else None
    return Cast(policy, None if mutator and mutator.id == policy.id else mutator)


def known(catalog: Catalog, cells: Iterable[MatrixCell]) -> dict[tuple[UUID, UUID | None], Cast]:
    """Return everybody who may be asked: the policies, newest first, then those that cells have with a mutator."""
    policies = {policy.id: policy for policy in every(catalog.policies)}
    casts = [Cast(policy) for policy in policies.values()]
    pairs = dict.fromkeys(cell.asked for cell in cells if cell.mutator_id)
    casts += [Cast(policies[a], policies[b]) for a, b in pairs if a in policies and b in policies]
    return {cast.key: cast for cast in casts}
