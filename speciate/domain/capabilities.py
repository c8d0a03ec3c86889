"""Capabilities that workers announce: programs of languages, and container images."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from speciate.domain.known_languages import programs_of

IMAGES: Final = "container images"
"""The worker runs programs in container images."""

COPIES: Final = "writable folders of container images"
"""Its containers can have folders of the image that programs may write to."""

CALLABLE: Final = "callable_"
"""Begins the capability of a process that scores with a function of its own. Only its author gets candidates."""


def evaluator_command(problem: str, capabilities: Iterable[str]) -> str:
    """Return the command that evaluates a problem's candidates outside of the service."""
    options = "".join(f" --capability {each}" for each in capabilities)
    return f"speciate evaluate --problem {problem}{options} -- COMMAND"


IMAGE_CAPABILITIES: Final = frozenset({IMAGES, COPIES})


def capabilities_for(image: str | None, writable: Collection[str], programs: Iterable[str]) -> frozenset[str]:
    """Return what a worker needs for a problem.

    ``programs`` are those that their commands begin with; those of an image are inside it.
    """
    if image is None:
        return frozenset(programs)
    return IMAGE_CAPABILITIES if writable else frozenset({IMAGES})


STRONGEST: Final = "A"
"""Sandbox tier that runs every language."""

PYTHON_ONLY: Final = "B"
"""Sandbox tier whose candidates start no process, so that they can only be Python programs."""


def missing_capabilities(needs: Set[str], machines: Sequence[Set[str]], tiers: Set[str]) -> tuple[str, str] | None:
    """Return what the worker lacks that lacks least, and the remedy; None if a worker has everything.

    ``machines`` are the capabilities of each evaluate worker, ``tiers`` their sandbox tiers.
    """
    lacking = [sorted(needs - machine) for machine in machines] or [sorted(needs)]
    missing = min(lacking, key=lambda names: (len(names), names))
    if not missing:
        return None
    if tiers == {PYTHON_ONLY} and IMAGE_CAPABILITIES.isdisjoint(missing):
        return "sandbox tier A, which other languages than Python need", TIER_REMEDY
    return " and ".join(missing), remedy_for(missing)


TIER_REMEDY: Final = (
    "Install the Debian package bubblewrap where candidates are evaluated, unset SPECIATE_SANDBOX if it is set, then"
    " restart `speciate up`"
)


def remedy_for(missing: Collection[str]) -> str:
    """Return how a worker gets the capabilities that it lacks."""
    if IMAGE_CAPABILITIES.isdisjoint(missing):
        return "Install it on a worker, or name its folder there in SPECIATE_TOOLCHAINS"
    return "Install podman on a worker" if COPIES in missing else "Install podman or docker on a worker"


def required_capabilities(definition: Mapping[str, Any]) -> frozenset[str]:
    """Programs and other capabilities that a worker needs, by ``language``, ``image`` and ``writable`` of a problem."""
    language = definition["language"]
    commands = programs_of(language.get("build", ()), language.get("run", ()))
    return capabilities_for(definition["image"], definition["writable"] or (), commands)


def waiting_reason(definition: Mapping[str, Any], machines: Sequence[Set[str]], tiers: Set[str]) -> str | None:
    """Why no worker can evaluate a problem; None if one can; arguments as of the functions above."""
    required = required_capabilities(definition)
    lack = missing_capabilities(required, machines, tiers)
    if lack is None:
        return None
    missing, remedy = lack
    what = definition["language"]["name"] if IMAGE_CAPABILITIES.isdisjoint(required) else "its image"
    return (
        f"waits for a worker that runs {what}: no evaluate worker has {missing}. {remedy};"
        " `speciate doctor` lists what each worker has"
    )
