"""Before a campaign is stored: names become versions, and every run there may be is checked as if it were started."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from speciate.domain.campaign import MAX_SLICES, AllocationMode, Campaign
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.policy import PolicyRole
from speciate.domain.validation import validation_message
from speciate.ports.records.policies import PolicyVersion, WeightedPolicyVersion
from speciate.ports.runs import Ensembles
from speciate.runs.steer import check_run
from speciate.runs.tournaments import Versions, pinned_problems

Asked = tuple[PolicyVersion, PolicyVersion | None, Ensembles]
"""The first policies of both roles, and the policies of all roles where one of them has several."""


def cast_of(policy: Mapping[str, float], mutator: Mapping[str, float] | None, versions: Versions) -> Asked:
    """Return who is asked, by names with weights; raises ``NotFoundError`` for an unknown policy."""
    roles = {PolicyRole.PROPOSE: policy, PolicyRole.MUTATE: mutator or {}}
    asked = {
        role: [WeightedPolicyVersion(version=versions.policy(name), weight=weight) for name, weight in names.items()]
        for role, names in roles.items()
    }
    several = any(len(shares) > 1 for shares in asked.values())
    changes = asked[PolicyRole.MUTATE]
    return (
        asked[PolicyRole.PROPOSE][0].version,
        changes[0].version if changes else None,
        {role: shares for role, shares in asked.items() if several and shares},
    )


def pin(declared: Campaign, versions: Versions) -> Campaign:
    """Return the declaration with ``slug@version`` for every name, checked: from here on nothing in it can change.

    Raises:
        NotFoundError: A problem, set or policy is unknown.
        InvalidInputError: The budget does not give every problem something, a strategy or option is not valid, a codec
            cannot write a problem, or two names mean the same version; the flaw says where.
    """
    problems = tuple(pinned_problems(declared.problems, versions))
    roles = {"policy": declared.policy, "mutator": declared.mutator}
    cast = {
        role: {_named(versions.policy(name)): weight for name, weight in names.items()}
        for role, names in roles.items()
        if names is not None
    }
    for role, names in cast.items():
        if len(names) < len(roles[role] or {}):
            raise _invalid(role, f"{role} names {[*names][-1]} twice: expected every policy once")
    try:
        pinned = Campaign.model_validate({**declared.model_dump(), "problems": problems, **cast})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise _invalid(
            ".".join(str(part) for part in detail["loc"]) or "problems", validation_message(detail)
        ) from None
    _check_budget(pinned)
    policy, mutator, ensembles = cast_of(pinned.policy, pinned.mutator, versions)
    for name in problems:
        check_run(versions.problem(name), policy, mutator, pinned.spec(), ensembles)
    return pinned


def _check_budget(pinned: Campaign) -> None:
    given, count = pinned.evaluations, len(pinned.problems)
    if given < pinned.min_evaluations:
        each = f"a slice of {pinned.slice:,}" if pinned.mode is AllocationMode.ADAPTIVE else "one evaluation"
        least = f"expected at least {pinned.min_evaluations:,}, {each} for each of {count:,} problem{'s' * (count > 1)}"
        raise _invalid("evaluations", f"{given:,} evaluations are too few: {least}")
    if pinned.slices > MAX_SLICES:
        size = -(-given // MAX_SLICES)
        raise _invalid("slice", f"{given:,} evaluations would be {pinned.slices:,} slices: expected at least {size:,}")


def _named(version: PolicyVersion) -> str:
    return f"{version.definition.slug}@{version.version}"


def _invalid(where: str, message: str) -> InvalidInputError:
    flaw = FieldError(message, where=where)
    return InvalidInputError(f"The campaign is not valid: {flaw}", flaws=(flaw,))
