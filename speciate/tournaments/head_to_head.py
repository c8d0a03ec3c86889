"""The standard head-to-head: entrants that compare policies alone, evolved and with a common mutator."""

from __future__ import annotations

from collections.abc import Sequence

from speciate.domain.entrant import Entrant


def head_to_head(
    policies: Sequence[str], *, mutator: str | None = None, strategy: str = "vector_evolution"
) -> tuple[tuple[Entrant, ...], str]:
    """Return the entrants of a standard head-to-head and the name of its baseline.

    There are three groups, so that a mutator cannot hide a policy: ``independent`` (best of n), ``evolved`` (each
    policy changes its own parents) and, with a mutator, ``common-mutator`` (it changes the parents of all policies).
    In each group the policies are compared with the first policy; its searches are compared with its own independent
    answers.

    Args:
        policies: Names of policies, the baseline first.
        mutator: The common mutator.
        strategy: Strategy of the evolved groups.
    """
    groups: list[tuple[str, str, str | None]] = [("independent", "best_of_n", None), ("evolved", strategy, None)]
    if mutator is not None:
        groups.append(("common-mutator", strategy, mutator))
    labels = [policy.replace("@", "-v") for policy in policies]
    baseline = f"{labels[0]}-independent"
    entrants = [
        Entrant(
            name=f"{label}-{group}",
            policy=policy,
            strategy=search,
            mutator=common,
            against=f"{labels[0]}-{group}" if label != labels[0] else None,
        )
        for group, search, common in groups
        for policy, label in zip(policies, labels, strict=True)
    ]
    return tuple(entrants), baseline
