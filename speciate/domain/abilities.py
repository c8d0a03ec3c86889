"""Abilities that workers announce beside the programs of languages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

IMAGES: Final = "container images"
"""The worker runs programs in container images."""

COPIES: Final = "writable folders of container images"
"""Its containers can have folders of the image that programs may write to."""

ABILITIES: Final = frozenset({IMAGES, COPIES})


def needs_of(image: str | None, writable: Collection[str], programs: Iterable[str]) -> frozenset[str]:
    """Return what a worker needs for a problem.

    Args:
        image: Image in which candidates are built and run, if any.
        writable: Folders of the image that they may write to.
        programs: Programs that their commands begin with; those of an image are inside it.
    """
    if image is None:
        return frozenset(programs)
    return ABILITIES if writable else frozenset({IMAGES})


def remedy_for(missing: Collection[str]) -> str:
    """Return how a worker gets what it lacks: abilities, or programs."""
    if ABILITIES.isdisjoint(missing):
        return "Install it on a worker, or name its folder there in SPECIATE_TOOLCHAINS"
    return "Install podman on a worker" if COPIES in missing else "Install podman or docker on a worker"
