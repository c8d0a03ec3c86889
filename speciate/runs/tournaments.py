"""Before a tournament is stored: names become versions, and every run of the plan is checked as if it were started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from speciate.domain.entrant import Entrant, Member
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.policy import PolicyRole
from speciate.domain.tournament import Extension, Tournament
from speciate.domain.validation import validation_message
from speciate.domain.values import digest_of
from speciate.ports.records.policies import PolicyVersion, WeightedPolicyVersion
from speciate.ports.records.problems import ProblemSet, ProblemVersion
from speciate.ports.runs import NO_ENSEMBLES, Ensembles
from speciate.runs.steer import check_run

SET: Final = "set:"
"""Before the name of a problem set where a problem is expected: all problems of the set."""

M = TypeVar("M", bound=BaseModel)


class Versions(Protocol):
    """Finds versions by name; raises ``NotFoundError`` where there is none."""

    def problem(self, name: str) -> ProblemVersion:
        """Return a problem version."""
        ...

    def problem_set(self, name: str) -> ProblemSet:
        """Return a frozen list of them."""
        ...

    def policy(self, name: str) -> PolicyVersion:
        """Return a policy version."""
        ...


def pin(declared: Tournament, versions: Versions) -> Tournament:
    """Return the declaration with ``slug@version`` for every name, checked: from here on nothing in it can change.

    Raises:
        NotFoundError: A problem, set or policy is unknown.
        InvalidInputError: A problem lacks the target, a strategy or option is not valid, a codec cannot write a
            problem, or two names mean the same version; the flaw says where.
    """
    entrants = tuple(_pinned(entrant, versions) for entrant in declared.entrants)
    _refuse_twins(entrants)
    problems = tuple(pinned_problems(declared.problems, versions))
    pinned = _valid(Tournament, declared, problems=problems, entrants=entrants)
    _check(pinned, problems, versions)
    return pinned


def pin_extension(extension: Extension, declared: Tournament, versions: Versions) -> Extension:
    """Return an extension with versions for names, checked against its tournament; raises as ``pin`` does."""
    problems = tuple(pinned_problems(extension.problems, versions))
    _check(declared, problems, versions)
    return _valid(Extension, extension, problems=problems)


def pinned_problems(names: Iterable[str], versions: Versions) -> Iterator[str]:
    """Yield the versions that names of problems and ``set:NAME`` mean; raises ``NotFoundError`` for an unknown one."""
    for name in names:
        if name.startswith(SET):
            members = versions.problem_set(name.removeprefix(SET)).problems
            yield from (f"{member.slug}@{member.version}" for member in members)
        else:
            found = versions.problem(name)
            yield f"{found.definition.slug}@{found.version}"


def _pinned(entrant: Entrant, versions: Versions) -> Entrant:
    def version(name: str) -> str:
        return versions.policy(name).name

    def versions_of(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(member.model_copy(update={"policy": version(member.policy)}) for member in members)

    return entrant.model_copy(
        update={
            "policy": version(entrant.policy),
            "mutator": None if entrant.mutator is None else version(entrant.mutator),
            "policies": versions_of(entrant.policies),
            "mutators": versions_of(entrant.mutators),
        }
    )


def _refuse_twins(entrants: tuple[Entrant, ...]) -> None:
    known: dict[str, str] = {}
    for i, entrant in enumerate(entrants):
        same = known.setdefault(digest_of(entrant.model_dump(mode="json", exclude={"name", "against"})), entrant.name)
        if same != entrant.name:
            message = f"{entrant.name!r} is {same!r} by another name"
            raise _invalid(f"entrants.{i}", f"{message}: expected another policy, mutator, strategy or option")


def ensembles_of(entrant: Entrant, versions: Versions) -> Ensembles:
    """Return the policies of all roles where one of them has several, as a run takes them."""
    if not entrant.ensemble:
        return NO_ENSEMBLES
    proposers = entrant.policies or (Member(policy=entrant.policy),)
    mutators = entrant.mutators or ((Member(policy=entrant.mutator),) if entrant.mutator else ())
    cast = {PolicyRole.PROPOSE: proposers, PolicyRole.MUTATE: mutators}
    return {
        role: [WeightedPolicyVersion(version=versions.policy(m.policy), weight=m.weight) for m in members]
        for role, members in cast.items()
        if members
    }


def _check(declared: Tournament, problems: Iterable[str], versions: Versions) -> None:
    found = [versions.problem(name) for name in problems]
    for i, problem in enumerate(found):
        names = [target.name for target in problem.definition.targets]
        if declared.target is not None and declared.target not in names:
            message = f"{declared.slug!r} counts target {declared.target!r}, which {problem.definition.slug!r} lacks"
            raise _invalid(f"problems.{i}", f"{message}: expected one of {', '.join(names)}")
    for i, entrant in enumerate(declared.entrants):
        policy = versions.policy(entrant.policy)
        mutator = None if entrant.mutator is None else versions.policy(entrant.mutator)
        ensembles = ensembles_of(entrant, versions)
        for problem in found:
            try:
                check_run(problem, policy, mutator, declared.spec(entrant, 0), ensembles)
            except InvalidInputError as error:
                place = ".".join(["entrants", str(i), *(flaw.where for flaw in error.flaws[:1])])
                raise _invalid(place.rstrip("."), f"entrant {entrant.name!r}: {error}") from None


def _valid(model: type[M], given: M, **changes: object) -> M:
    try:
        return model.model_validate({**given.model_dump(), **changes})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise _invalid(
            ".".join(str(part) for part in detail["loc"]) or "problems", validation_message(detail)
        ) from None


def _invalid(where: str, message: str) -> InvalidInputError:
    flaw = FieldError(message, where=where)
    return InvalidInputError(f"The tournament is not valid: {flaw}", flaws=(flaw,))
