"""Container images in which programs of a problem are built and run."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, StringConstraints

_NAME: Final = r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_PINNED: Final = re.compile(rf"^{_NAME}@sha256:[0-9a-f]{{64}}$")


def check_image(reference: Any) -> Any:
    """Return a reference to an image; ``ValueError`` without a digest: a tag names another image tomorrow."""
    if not isinstance(reference, str) or _PINNED.fullmatch(reference):
        return reference
    name = reference.partition("@")[0]
    if "@" in reference or not re.fullmatch(rf"{_NAME}(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?", name):
        raise ValueError(f"image {reference[:200]!r} is no reference: expected NAME@sha256: and 64 hexadecimal digits")
    raise ValueError(
        f"image {reference[:200]!r} names no digest, and a tag may change: expected NAME@sha256:…; after `podman pull"
        f" {name[:200]}` (or docker) the command `podman image inspect --format '{{{{index .RepoDigests 0}}}}'"
        f" {name[:200]}` prints it"
    )


ImageName = Annotated[str, BeforeValidator(check_image), StringConstraints(max_length=500)]
"""Reference to an image by digest."""

FOLDER: Final = r"^(/[A-Za-z0-9._-]+)+$"

ImageFolder = Annotated[str, StringConstraints(pattern=FOLDER, max_length=200)]
"""Absolute path of a folder in an image."""
