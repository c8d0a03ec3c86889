"""Validate declarations before they are stored: pin names to versions and check every run they may start."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from speciate.domain.campaign import MAX_SLICES, AllocationMode, Campaign
from speciate.domain.declaration import DeclarationKind
from speciate.domain.entrant import Entrant, Member
from speciate.domain.errors import InvalidInputError, invalid_field
from speciate.domain.tournament import Extension, Tournament
from speciate.domain.validation import first_mistake
from speciate.domain.values import digest_of
from speciate.domain.visibility import require_visible
from speciate.runs.checks import check_run
from speciate.runs.run_policies import Versions, policies_of
from speciate.schema.policies import PolicyVersion, RunPolicies
from speciate.schema.problems import ProblemSummary, ProblemVersion

SET_PREFIX: Final = "set:"
"""Prefix of a problem set's name where a problem is expected: it stands for all problems of the set."""

M = TypeVar("M", bound=BaseModel)


def entrant_policies(entrant: Entrant, versions: Versions) -> RunPolicies:
    proposers = entrant.policies or (Member(policy=entrant.policy),)
    mutators = entrant.mutators or ((Member(policy=entrant.mutator),) if entrant.mutator else ())
    return policies_of(((m.policy, m.weight) for m in proposers), ((m.policy, m.weight) for m in mutators), versions)


def campaign_policies(declared: Campaign, versions: Versions) -> RunPolicies:
    return policies_of(declared.policy.items(), (declared.mutator or {}).items(), versions)


def pin_tournament(declared: Tournament, versions: Versions) -> Tournament:
    """Return a tournament with ``slug@version`` for every name, after checking every run of its plan.

    Raises:
        NotFoundError: A problem, set or policy is unknown.
        ConflictError: A problem or policy is archived or deleted.
        InvalidInputError: A problem lacks the target, a strategy or option is invalid, a codec cannot encode a
            problem, or two names denote the same version; the error locates the field.
    """
    entrants = tuple(_pinned_entrant(entrant, versions) for entrant in declared.entrants)
    _refuse_equal_entrants(entrants)
    _refuse_equal_checkpoints(entrants, versions)
    problems = tuple(_pinned_problems(declared.problems, versions))
    pinned = _revised(DeclarationKind.TOURNAMENT, declared, problems=problems, entrants=entrants)
    _check_plan(pinned, problems, versions)
    return pinned


def pin_extension(extension: Extension, declared: Tournament, versions: Versions) -> Extension:
    """Return an extension with versions for names, checked against its tournament; raises as ``pin_tournament``."""
    problems = tuple(_pinned_problems(extension.problems, versions))
    _check_plan(declared, problems, versions)
    return _revised(DeclarationKind.TOURNAMENT, extension, problems=problems)


def pin_campaign(declared: Campaign, versions: Versions) -> Campaign:
    """Return a campaign with ``slug@version`` for every name, after checking a run of every problem.

    Raises as ``pin_tournament``, and ``InvalidInputError`` if the budget is too small for the problems.
    """
    problems = tuple(_pinned_problems(declared.problems, versions))
    roles = {"policy": declared.policy, "mutator": declared.mutator}
    weights = {
        role: {_visible_policy(name, versions).name: weight for name, weight in names.items()}
        for role, names in roles.items()
        if names is not None
    }
    for role, names in weights.items():
        if len(names) < len(roles[role] or {}):
            raise invalid_field("The campaign", role, f"{role} names {[*names][-1]} twice: expected every policy once")
    pinned = _revised(DeclarationKind.CAMPAIGN, declared, problems=problems, **weights)
    _check_budget(pinned)
    policies = campaign_policies(pinned, versions)
    if policies.policy.definition.is_external:
        # Runs of a campaign take no proposals, so they would never end.
        message = f"policy {policies.policy.name} proposes from outside, and runs of a campaign take no proposals"
        raise invalid_field("The campaign", "policy", f"{message}: expected a policy that the service asks")
    for name in problems:
        check_run(versions.problem(name), policies, pinned.spec(pinned.grant))
    return pinned


def _pinned_problems(names: Iterable[str], versions: Versions) -> Iterator[str]:
    for name in names:
        if name.startswith(SET_PREFIX):
            for member in versions.problem_set(name.removeprefix(SET_PREFIX)).problems:
                yield _visible_problem(f"{member.slug}@{member.version}", member)
        else:
            version = versions.problem(name)
            yield _visible_problem(f"{version.definition.slug}@{version.version}", version)


def _visible_problem(name: str, version: ProblemSummary | ProblemVersion) -> str:
    require_visible(f"problem {name}", version)
    return name


def _visible_policy(name: str, versions: Versions) -> PolicyVersion:
    version = versions.policy(name)
    require_visible(f"policy {version.name}", version)
    return version


def _pinned_entrant(entrant: Entrant, versions: Versions) -> Entrant:
    def version(name: str) -> str:
        return _visible_policy(name, versions).name

    def pinned_members(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(member.model_copy(update={"policy": version(member.policy)}) for member in members)

    return entrant.model_copy(
        update={
            "policy": version(entrant.policy),
            "mutator": None if entrant.mutator is None else version(entrant.mutator),
            "policies": pinned_members(entrant.policies),
            "mutators": pinned_members(entrant.mutators),
        }
    )


def _refuse_equal_entrants(entrants: tuple[Entrant, ...]) -> None:
    names: dict[str, str] = {}
    for i, entrant in enumerate(entrants):
        # A policy entered twice as two training runs would count as two.
        same = names.setdefault(digest_of(entrant.played()), entrant.name)
        if same not in (entrant.name, entrant.duplicate_of):
            message = f"{entrant.name!r} is {same!r} by another name"
            expected = f"expected another policy, mutator, strategy or option, or duplicate_of = {same!r}"
            raise invalid_field("The tournament", f"entrants.{i}", f"{message}: {expected}")


def _refuse_equal_checkpoints(entrants: tuple[Entrant, ...], versions: Versions) -> None:
    """Reject training runs of one method with the same weights: they would count as several."""
    names: dict[tuple[object, ...], str] = {}
    for i, entrant in enumerate(entrants):
        weights = versions.policy(entrant.policy).definition.checkpoint_digest
        if entrant.method is None or weights is None:
            continue
        same = names.setdefault((entrant.method, entrant.search, weights), entrant.name)
        if same != entrant.name:
            message = f"{entrant.name!r} and {same!r} are one training run of method {entrant.method!r}"
            raise invalid_field(
                "The tournament", f"entrants.{i}.policy", f"{message}: expected policies of different weights"
            )


def _check_plan(declared: Tournament, problems: Iterable[str], versions: Versions) -> None:
    versions_of_problems = [versions.problem(name) for name in problems]
    for i, problem in enumerate(versions_of_problems):
        names = [target.name for target in problem.definition.targets]
        if declared.target is not None and declared.target not in names:
            message = f"{problem.definition.slug!r} has no target {declared.target!r}"
            raise invalid_field("The tournament", f"problems.{i}", f"{message}: expected one of {', '.join(names)}")
    for i, entrant in enumerate(declared.entrants):
        policies = entrant_policies(entrant, versions)
        for problem in versions_of_problems:
            try:
                check_run(problem, policies, declared.spec(entrant, 0))
            except InvalidInputError as error:
                where = ".".join(["entrants", str(i), *(field_error.where for field_error in error.field_errors[:1])])
                message = f"entrant {entrant.name!r}: {error}"
                raise invalid_field("The tournament", where.rstrip("."), message) from None


def _check_budget(pinned: Campaign) -> None:
    evaluations, count = pinned.evaluations, len(pinned.problems)
    if evaluations < pinned.min_evaluations:
        each = f"a slice of {pinned.slice:,}" if pinned.mode is AllocationMode.ADAPTIVE else "one evaluation"
        least = f"expected at least {pinned.min_evaluations:,}, {each} for each of {count:,} problem{'s' * (count > 1)}"
        raise invalid_field("The campaign", "evaluations", f"{evaluations:,} evaluations are too few: {least}")
    if pinned.slices > MAX_SLICES:
        size = -(-evaluations // MAX_SLICES)
        message = f"{evaluations:,} evaluations would be {pinned.slices:,} slices: expected at least {size:,}"
        raise invalid_field("The campaign", "slice", message)


def _revised(kind: DeclarationKind, declared: M, **changes: object) -> M:
    try:
        return type(declared).model_validate({**declared.model_dump(), **changes})
    except ValidationError as error:
        where, message = first_mistake(error)
        raise invalid_field(f"The {kind}", where or "problems", message) from None
