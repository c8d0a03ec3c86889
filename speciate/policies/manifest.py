"""Read and write the manifest of a checkpoint: its training, its prompt format, and the digest of its weights."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue, ValidationError

from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.policy import Policy, Probe, PromptFormat, PromptStyle, Sampling, Training
from speciate.domain.validation import first_mistake
from speciate.domain.values import Value, digest_of

MANIFEST: Final = "manifest.json"
_CURVE_POINTS: Final = 30  # points of the training curve that a registration stores
WEIGHTS: Final = ("model.safetensors", "adapter_model.safetensors")
SHARDS: Final = "model-*-of-*.safetensors"
"""File pattern of sharded weights, as larger models are published."""


class Manifest(Value):
    """Record of how a policy was trained and how to prompt it."""

    task: str
    """Task it was trained on, a key of ``speciate.training.tasks.TASKS``."""
    method: str
    """Estimator, or ``base`` for supervised training alone."""
    codec: str | None = None
    """Codec of its prompts, a key of ``speciate.prompts.codecs.CODECS``; None means English."""
    description: str = ""
    """Description of its policy; empty for one from task and method."""
    max_tokens: int = Field(ge=1)
    """Longest answer in tokens."""
    answers_per_rollout: int = Field(default=1, ge=1)
    """Answers in one completion, m. It can write single answers, too."""
    prompt_style: PromptStyle = PromptStyle.STANDARD
    prompt_format: PromptFormat | None = None
    """Prompt format of the policy that a run taught; None for that of the codec."""
    sampling: Sampling | None = None
    """Sampling of that policy; None for that of training."""
    seed: int
    """Seed of all randomness."""
    steps: int = Field(ge=0)
    """Updates made."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    base_digest: str | None = None
    """SHA-256 of the initial weights; None if they were random."""
    warm_up: dict[str, JsonValue] = Field(default_factory=dict)
    """Supervised warm-up of the initial weights: updates, share of readable slots at its end, gate, and its base."""
    probe: Probe | None = None
    """Log-probabilities under base and trained weights, which verify an endpoint."""
    problems: int | None = None
    """Training problems: fewer than in ``config`` if its task had no more."""
    data_digest: str = ""
    """SHA-256 of the definitions of the training problems."""
    versions: dict[str, str] = Field(default_factory=dict)
    metrics: tuple[dict[str, float], ...] = ()
    """Measurements over time, one mapping for each entry, with ``step``."""

    @property
    def is_mutator(self) -> bool:
        """True if it was trained to change other policies' candidates (docs/adr/0026-mutators.md)."""
        share = self.config.get("mutation_share", 0)
        return isinstance(share, int | float) and share > 0.5


def write_manifest(folder: Path, manifest: Manifest) -> None:
    draft = folder / f"{MANIFEST}.new"  # renamed into place: a manifest marks its checkpoint as complete
    draft.write_text(manifest.model_dump_json(indent=1) + "\n", "utf-8")
    draft.replace(folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint; ``NotFoundError`` or ``InvalidInputError`` if there is none."""
    path = folder / MANIFEST
    try:
        if path.exists() and not path.is_file():  # a named pipe would wait for its writer
            raise InvalidInputError(f"{path} is not a file: expected the manifest of a checkpoint.")
        return Manifest.model_validate_json(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"there is no {path}: expected the folder of a checkpoint.",
            remedy="Pass a folder that 'speciate train' wrote.",
        ) from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text.") from None
    except ValidationError as error:
        place, message = first_mistake(error)
        raise InvalidInputError(f"{path} is not a manifest: {place or 'the file'}: {message}.") from None


def manifest_in(folder: Path) -> Manifest | None:
    with suppress(NotFoundError, InvalidInputError):
        return read_manifest(folder)
    return None


def policy_of(folder: Path, slug: str, *, base_url: str | None = None) -> Policy:
    """Return the registration of a checkpoint, with prompts and sampling as in its training."""
    manifest = read_manifest(folder)
    try:
        return _policy_of(folder, manifest, slug, base_url)
    except ValidationError as error:
        wrong = ": ".join(first_mistake(error))
    except ValueError as error:  # NaN in the configuration, which has no digest
        wrong = str(error)
    raise InvalidInputError(f"{folder / MANIFEST} describes no policy that can be registered as {slug!r}: {wrong}.")


def _policy_of(folder: Path, manifest: Manifest, slug: str, base_url: str | None) -> Policy:
    longest = manifest.max_tokens * manifest.answers_per_rollout
    temperature = manifest.config.get("temperature", 1.0)
    what = f"to change answers to task {manifest.task}" if manifest.is_mutator else f"on task {manifest.task}"
    return Policy(
        slug=slug,
        kind="embedded" if base_url is None else "openai_compatible",
        description=manifest.description or f"Trained {what} by {manifest.method}, seed {manifest.seed}.",
        base_url=base_url,
        model=folder.resolve().name,
        training_method=manifest.method,
        checkpoint_digest=weights_digest(folder),
        training=_training(manifest) if manifest.metrics else None,
        probe=manifest.probe,
        prompt_format=manifest.prompt_format or (PromptFormat.COMPLETION if manifest.codec else PromptFormat.CHAT),
        codec=manifest.codec,
        answers_per_rollout=manifest.answers_per_rollout,
        prompt_style=manifest.prompt_style,
        sampling=manifest.sampling or Sampling(temperature=temperature, max_tokens=longest, logprobs=True),
    )


def _training(manifest: Manifest) -> Training:
    curve = [(entry["entropy"], entry["mean"]) for entry in manifest.metrics if {"entropy", "mean"} <= entry.keys()]
    size = max(1, -(-len(curve) // _CURVE_POINTS))
    parts = [curve[i : i + size] for i in range(0, len(curve) - size + 1, size)]
    entropy, reward = (tuple(round(sum(p[j] for p in part) / size, 5) for part in parts) for j in (0, 1))
    what = manifest.model_dump(mode="json", include={"task", "method", "seed", "config", "base_digest", "data_digest"})
    return Training(digest=digest_of(what), step=manifest.steps, entropy=entropy, reward=reward)


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights, or of its shards' digests; ``NotFoundError`` without weights."""
    for name in WEIGHTS:
        if (path := folder / name).is_file():
            return _sha256(path)
    if shards := sorted(folder.glob(SHARDS)):
        return hashlib.sha256("".join(map(_sha256, shards)).encode()).hexdigest()
    raise NotFoundError(f"{folder} holds no {', '.join(WEIGHTS)} or {SHARDS}.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
