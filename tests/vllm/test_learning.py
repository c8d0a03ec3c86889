"""Learning on vLLM: tokens and log-probabilities as the trainer needs them, and every version loaded at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from speciate.domain.learning import Learning
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.manifest import weights_digest
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.learner import LearningGroup, LearningRollout, LearningTask
from speciate.ports.policy import SampleRequest
from speciate.training.learner import TorchLearner
from tests.support.openai_contract import ServedModel

PROMPTS = ("S00 .01 G02 .12 E22 <b9> <one>", "S60 .50 .40 G41 .31 .21 E20 <b12> <one>")
TOLERANCE = 2e-3  # nats per token
STEPS = 3


def _sampled(policy: Policy, step: int) -> tuple[LearningGroup, ...]:
    """Sample two groups of eight; a completion earns the more the shorter it is."""
    requests = [
        SampleRequest(Prompt("", prompt), PolicyRole.PROPOSE, 8, 10 * step + i, keep_tokens=True)
        for i, prompt in enumerate(PROMPTS)
    ]
    with OpenAICompatible(policy) as client:
        results = client.sample(requests)
    return tuple(
        LearningGroup(
            request.prompt,
            tuple(
                LearningRollout(c.token_ids, c.logprobs, ((1 - len(c.token_ids) / 12, 0.5),))
                for c in result.completions
            ),
            age=0,
        )
        for request, result in zip(requests, results, strict=True)
    )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_the_sampler_follows_every_step(plain: ServedModel, tmp_path: Path) -> None:
    base = Policy.model_validate(
        {
            "slug": "vmaze",
            "kind": "openai_compatible",
            "base_url": plain.url,
            "model": plain.name,
            "checkpoint_digest": weights_digest(plain.folder),
            "prompt_format": "completion",
            "sampling": {"max_tokens": 12, "logprobs": True},
            "served": {"root": str(plain.folder)},
        }
    )
    learner = TorchLearner(tmp_path)
    options = Learning(groups=2, lora_rank=4, learning_rate=1e-2)
    task = LearningTask(options, 5, 0, base, base, "vmaze-0123456789ab", _sampled(base, 0))
    names = []
    for step in range(STEPS):
        made = learner.step(task)
        # Versions of other weights would differ by more: the second step's KL divergence is of that size.
        assert made.metrics["gap"] < TOLERANCE
        changes = {"model": made.model, "checkpoint_digest": made.digest, "options": {**base.options, **made.options}}
        version = base.model_copy(update={**changes, "served": None})
        names.append(made.model)
        task = replace(task, step=step + 1, parent=version, groups=_sampled(version, step + 1))
    assert made.metrics["kl"] > 5 * TOLERANCE
    assert len(set(names)) == STEPS
    for name in plain.get("/v1/models").json()["data"][1:]:
        plain.post("unload_lora_adapter", {"lora_name": name["id"]})
