"""What is said when the files of a training cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from speciate.domain.errors import ConflictError


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Name the folder that something is written into, and nothing else is done meanwhile, when that fails.

    Raises:
        ConflictError: The disk is full, or the folder cannot be written.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # on a full disk torch and safetensors raise their own
        raise ConflictError(
            f"{folder} cannot be written: {error}",
            remedy="Make room there, or see to the permissions, and start again; what has begun goes on with --resume.",
        ) from error
