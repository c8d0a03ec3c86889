"""Checkpoints that runs learn: each in a folder under its digest, complete from the moment it has its name."""

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from speciate.domain.errors import InvalidInputError, LearningError, NotFoundError, UnavailableError
from speciate.domain.policy import Policy
from speciate.policies.endpoint_check import adapter_name
from speciate.policies.export import OPTIMIZER
from speciate.policies.manifest import Manifest, manifest_in, weights_digest, write_manifest
from speciate.ports.learner import LearningTask
from speciate.training.models import library_versions, load_model, lora_config, save_model


@dataclass(frozen=True)
class Weights:
    model: Any
    tokenizer: Any
    folder: Path


def base_folder(learned: Path, policy: Policy) -> Path:
    """Return the folder with the weights of a policy that a run begins with; ``LearningError`` without one."""
    from speciate.policies.bundled import checkpoints

    model = policy.model or ""
    served = policy.served
    named = (served.base_root or served.root) if served is not None else None
    places = [learned / model, checkpoints().get(model), Path(named) if named else None]
    for place in places:
        if place is not None and place.is_dir():
            return place
    raise LearningError(
        f"the learn worker has no folder with the weights of policy {policy.slug!r}.",
        remedy="Use a bundled policy, or a server that names the folder of its weights, readable for the worker.",
    )


def load_weights(learned: Path, task: LearningTask, device: str, *, base: bool = False) -> Weights:
    """Load the parent version of a step, or with ``base`` the policy that the run began with."""
    first = base_folder(learned, task.base)
    policy = task.base if base or task.step == 0 else task.parent
    folder = first if base or task.step == 0 else learned / (task.parent.model or "")
    try:
        if policy.checkpoint_digest and weights_digest(folder) != policy.checkpoint_digest:
            raise LearningError(f"{folder} holds other weights than policy {policy.slug!r}.")
        rank = 0 if base else task.learning.lora_rank
        model, tokenizer = load_model(first if rank else folder)
        if rank:
            from peft import PeftModel, get_peft_model

            if task.step:
                model = PeftModel.from_pretrained(model, folder, is_trainable=True)
            else:
                model = get_peft_model(model, lora_config(rank))
    except (InvalidInputError, NotFoundError) as error:
        raise LearningError(f"the weights of policy {policy.slug!r} cannot be loaded: {error}") from error
    return Weights(model.to(device), tokenizer, folder)


def keep_checkpoint(
    learned: Path, task: LearningTask, weights: Weights, optimizer: dict[str, Any]
) -> tuple[str, str, dict[str, str | bool]]:
    """Write a checkpoint and give it its name by one rename; ``UnavailableError`` if the disk is full.

    Return the name of its folder and model, the SHA-256 of its weights, and options for the client.
    """
    draft: Path | None = None
    try:
        learned.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".writing-", dir=learned))
        draft.chmod(0o755)
        save_model(weights.model, weights.tokenizer, draft)
        torch.save(optimizer, draft / OPTIMIZER)
        write_manifest(draft, _manifest(task, weights))
        digest = weights_digest(draft)
        place = learned / adapter_name(task.slug, digest)
        for path in draft.iterdir():
            _flush(path)
        if not place.exists():
            draft.rename(place)
            _flush(learned)
    except (OSError, RuntimeError, SafetensorError) as error:  # on a full disk torch and safetensors raise their own
        raise UnavailableError(
            f"the checkpoint of step {task.step + 1} cannot be written to {learned}: {_cause(error, learned)}.",
            remedy="Free disk space or fix the permissions, then resume the run.",
        ) from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
    # No step needs states before the parent's, which a repeated attempt reads; of late attempts, others may be newer.
    for path in learned.glob(f"{task.slug}-{'[0-9a-f]' * 12}/{OPTIMIZER}"):
        if (version := manifest_in(path.parent)) is not None and version.steps < task.step:
            with suppress(OSError):
                path.unlink()
    options: dict[str, str | bool] = {"check": False}
    if task.learning.lora_rank:
        options = {"adapter_path": str(place), "base_model": task.base.model or ""}
    return place.name, digest, options


def _cause(error: Exception, folder: Path) -> str:
    """Return the reason of a failed write. On a full disk torch and safetensors name a place in their own sources."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    with suppress(OSError):
        return f"its disk has {shutil.disk_usage(folder).free / 1e6:,.1f} MB left"
    return str(error)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(task: LearningTask, weights: Weights) -> Manifest:
    before = manifest_in(weights.folder) or Manifest(task="run", method="base", max_tokens=1, seed=task.seed, steps=0)
    return before.model_copy(
        update={
            "method": task.learning.estimator.value,
            "codec": task.base.codec,
            "max_tokens": -(-task.base.sampling.max_tokens // task.base.answers_per_rollout),
            "answers_per_rollout": task.base.answers_per_rollout,
            "prompt_style": task.base.prompt_style,
            "prompt_format": task.base.prompt_format,
            "sampling": task.base.sampling,
            "seed": task.seed,
            "steps": task.step + 1,
            "config": task.learning.model_dump(mode="json"),
            "base_digest": task.base.checkpoint_digest,
            "versions": library_versions(),
            "metrics": (),
            "probe": None,
        }
    )
