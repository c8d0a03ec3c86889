"""Copy the checkpoint of a policy version that a run learned."""

import shutil
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.policy import Policy
from speciate.policies.manifest import weights_digest

OPTIMIZER: Final = "optimizer.pt"
"""File of a learned checkpoint with the state of its optimizer."""


def export_checkpoint(policy: Policy, learned: Path, folder: Path, *, optimizer: bool = False) -> None:
    """Copy a learned checkpoint into a new folder, after verifying the digest of its weights."""
    if policy.lineage is None:
        raise InvalidInputError(f"no run learned policy {policy.slug!r}: expected a version with a lineage.")
    source = learned / (policy.model or "")
    if not source.is_dir():
        raise NotFoundError(
            f"the checkpoint of {policy.slug!r} is not in {learned}.",
            remedy="Run this on the machine of the learn worker, with its SPECIATE_CHECKPOINTS_DIR.",
        )
    if weights_digest(source) != policy.checkpoint_digest:
        raise ConflictError(f"{source} holds other weights than {policy.slug!r}.", remedy="Restore it from a backup.")
    if optimizer and not (source / OPTIMIZER).is_file():
        raise NotFoundError(f"{source} has no {OPTIMIZER}: only the newest versions of a run keep it.")
    try:
        shutil.copytree(source, folder, ignore=None if optimizer else shutil.ignore_patterns(OPTIMIZER))
    except FileExistsError:
        raise ConflictError(f"{folder} exists.", remedy="Choose a new folder.") from None
    except OSError as error:
        raise ConflictError(f"cannot write {folder}: {error}") from None
