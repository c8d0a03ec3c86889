"""The standard head-to-head: entrants that compare policies alone, evolved and with a common mutator."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from speciate.domain.entrant import Entrant
from speciate.domain.errors import InvalidInputError

_INDEPENDENT: Final = "best_of_n"


class _Competitor(NamedTuple):
    policy: str
    rival: str | None
    """Policy to compare with in every group; None for a policy of the baseline."""
    method: str | None = None
    """Training method, if several training runs are compared."""
    training_seed: int | None = None


def head_to_head(
    policies: Sequence[str], *, mutator: str | None = None, strategy: str = "vector_evolution"
) -> tuple[tuple[Entrant, ...], str]:
    """Return the entrants of a standard head-to-head and the name of its baseline.

    There are three groups, so that a mutator cannot hide a policy: ``independent`` (best of n), ``evolved`` (each
    policy changes its own parents) and, with a mutator, ``common-mutator`` (it changes the parents of all policies).
    In each group the policies are compared with the first policy; its searches are compared with its own independent
    answers. With the strategy ``best_of_n``, which takes no mutator, there is only the first group.
    """
    first, *others = policies
    return _entrants([_Competitor(first, None), *(_Competitor(each, first) for each in others)], mutator, strategy)


def methods_head_to_head(
    methods: Mapping[str, Sequence[tuple[str, int]]], *, mutator: str | None = None, strategy: str = "vector_evolution"
) -> tuple[tuple[Entrant, ...], str]:
    """Return the entrants of a head-to-head of training methods and the name of its baseline.

    The groups are those of ``head_to_head``. Each training run is compared with the run of the first method at the same
    position, and the searches of the first method's runs with their own independent answers.
    """
    (baseline, first), *others = methods.items()
    competitors = [_Competitor(policy, None, baseline, seed) for policy, seed in first]
    for method, runs in others:
        pairs = zip_longest(runs, first[: len(runs)], fillvalue=first[0])
        competitors += [_Competitor(policy, rival, method, seed) for (policy, seed), (rival, _) in pairs]
    return _entrants(competitors, mutator, strategy)


def _entrants(
    competitors: Sequence[_Competitor], mutator: str | None, strategy: str
) -> tuple[tuple[Entrant, ...], str]:
    policies = [each.policy for each in competitors]
    if repeated := [policy for policy in policies if policies.count(policy) > 1]:
        raise InvalidInputError(f"policy {repeated[0]!r} is named twice.", remedy="Name each policy once.")
    groups: list[tuple[str, str, str | None]] = [("independent", _INDEPENDENT, None)]
    if strategy != _INDEPENDENT:
        groups.append(("evolved", strategy, None))
    if mutator is not None:
        if strategy == _INDEPENDENT:
            raise InvalidInputError(
                f"strategy {_INDEPENDENT!r} never changes a parent, so a common mutator does nothing.",
                remedy="Omit --mutator, or choose another --strategy.",
            )
        groups.append(("common-mutator", strategy, mutator))
    baseline = f"{_label(competitors[0].policy)}-independent"
    entrants = [
        Entrant(
            name=f"{_label(each.policy)}-{group}",
            policy=each.policy,
            strategy=search,
            mutator=common,
            against=_against(each, group, baseline),
            method=each.method,
            training_seed=each.training_seed,
        )
        for group, search, common in groups
        for each in competitors
    ]
    return tuple(entrants), baseline


def _against(competitor: _Competitor, group: str, baseline: str) -> str | None:
    if competitor.rival is not None:
        return f"{_label(competitor.rival)}-{group}"
    own = f"{_label(competitor.policy)}-independent"
    return None if group == "independent" or own == baseline else own


def _label(policy: str) -> str:
    return policy.replace("@", "-v")
