"""Take one training step of a run: load the parent version, update it, and write the child under its digest (ADR 52).

Policy gradient with truncated importance ratios (Espeholt et al., arXiv 1802.01561, section 4.1): every token of a
completion has the weight min(π/μ, 2), where μ is the log-probability that the sampler reported and π that of the
parent. Both are of the model's own distribution, before temperature and top-p. The KL term is Schulman's k3 estimate
against the policy that the run began with.
"""

import time
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from speciate.domain.errors import LearningError
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.export import OPTIMIZER
from speciate.policies.kind import client_options
from speciate.policies.openai_options import OpenAICompatibleOptions
from speciate.policies.openai_wire import payload_of
from speciate.ports.learner import LearnedCheckpoint, LearningTask
from speciate.ports.policy import SampleRequest
from speciate.training.advantages import ESTIMATORS
from speciate.training.learned_folder import Weights, keep_checkpoint, load_weights
from speciate.training.losses import logps_and_entropies, low_variance_kl
from speciate.training.models import chat_text, token_bytes
from speciate.training.reward_batch import EstimatorConfig

RATIO_CAP: Final = 2.0
GAP_LIMIT: Final = 0.5
"""Mean difference in nats per token, between sampler and trainer of one version, that means other weights or tokens."""
_AT_ONCE: Final = 64
_PASS_BYTES: Final = 4 << 30
"""Memory of a pass. It is no share of the machine's, so that a step does not depend on that, even by rounding."""


@dataclass(frozen=True)
class _Rows:
    """Completions as tensors: B rows of prompt and completion, padded on the right to L tokens."""

    ids: torch.Tensor  # (B, L)
    mask: torch.Tensor  # (B, L), 1 for tokens
    written: torch.Tensor  # (B, L − 1), 1 where the next token belongs to the completion
    sampled: torch.Tensor
    """Log-probabilities that the sampler reported at the same places, shape (B, L − 1)."""
    groups: np.ndarray[Any, np.dtype[np.int64]]
    ages: torch.Tensor
    """Steps between the version that wrote the row and the parent."""
    rewards: list[np.ndarray[Any, np.dtype[np.float64]]]
    """Rewards of each row, shape (m, k); k differs between problems."""


class TorchLearner:
    """Learner with torch, on a GPU if there is one. It keeps the last version in memory for the next step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._kept: tuple[str, Weights] | None = None
        self._base: tuple[str, Weights] | None = None

    def step(self, task: LearningTask) -> LearnedCheckpoint:
        started = time.perf_counter()
        torch.manual_seed((task.seed * 1_000_003 + task.step) % 2**63)
        if self._kept is not None and self._kept[0] == task.parent.checkpoint_digest and task.step:
            weights = self._kept[1]
        else:
            self._kept = None
            weights = load_weights(self._folder, task, self._device)
        model = weights.model
        rows = _rows(task, weights.tokenizer, self._device)
        optimizer = torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad], lr=task.learning.learning_rate, weight_decay=0.01
        )
        if task.step and (path := weights.folder / OPTIMIZER).is_file():
            optimizer.load_state_dict(torch.load(path, weights_only=True))
        try:
            metrics = self._update(task, model, optimizer, rows)
            name, digest, options = keep_checkpoint(self._folder, task, weights, optimizer.state_dict())
        except BaseException:
            self._kept = None  # its model may be updated already
            raise
        self._kept = (digest, replace(weights, folder=self._folder / name))
        return LearnedCheckpoint(name, digest, options, time.perf_counter() - started, metrics)

    def _update(
        self, task: LearningTask, model: Any, optimizer: torch.optim.Optimizer, rows: _Rows
    ) -> dict[str, float]:
        advantages = torch.from_numpy(_advantages(task, rows)).to(self._device, torch.float32)
        tokens = rows.written.sum()
        sums = dict.fromkeys(("loss", "entropy", "kl", "gap", "fresh", "truncated"), 0.0)
        model.train()
        optimizer.zero_grad()
        row_bytes = rows.ids.shape[1] * token_bytes(model.config.get_text_config())
        at_once = min(_AT_ONCE, max(1, _PASS_BYTES // row_bytes))
        for start in range(0, len(rows.ids), at_once):
            part = slice(start, start + at_once)
            logps, entropies = _logps(model, rows, part)
            written, sampled = rows.written[part], rows.sampled[part]
            ratio = torch.exp(logps.detach() - sampled) * written
            losses = -ratio.clamp(max=RATIO_CAP) * advantages[part, None] * logps
            if task.learning.kl > 0:
                kl = low_variance_kl(logps, self._base_logps(task, model, rows, part))
                losses = losses + task.learning.kl * kl
                sums["kl"] += float((kl.detach() * written).sum())
            loss = (losses * written).sum() / tokens
            loss.backward()
            fresh = written * (rows.ages[part, None] == 0)
            sums["loss"] += float(loss.detach())
            sums["entropy"] += float((entropies.detach() * written).sum())
            sums["gap"] += float(((logps.detach() - sampled).abs() * fresh).sum())
            sums["fresh"] += float(fresh.sum())
            sums["truncated"] += float(((ratio > RATIO_CAP) * written).sum())
        if (gap := sums["gap"] / max(sums["fresh"], 1.0)) > GAP_LIMIT:
            raise LearningError(
                f"the server's log-probabilities differ by {gap:.2f} nats per token from those of the weights that step"
                f" {task.step + 1} trains: the server samples from other weights, or with another tokenizer."
            )
        norm = float(torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0))
        if not (isfinite(sums["loss"]) and isfinite(norm)):
            raise LearningError(f"the loss of step {task.step + 1} is not finite, so the step was undone.")
        optimizer.step()
        count = float(tokens)
        scores = np.array([rewards.mean(axis=1).max() for rewards in rows.rewards])
        best = [scores[rows.groups == group].max() for group in np.unique(rows.groups)]
        return {
            "reward": float(scores.mean()),
            "best": float(np.mean(best)),
            "entropy": sums["entropy"] / count,
            "kl": sums["kl"] / count,
            **({"gap": gap} if sums["fresh"] else {}),
            "age": float(rows.ages.float().mean()),
            "truncated": sums["truncated"] / count,
            "loss": sums["loss"],
            "gradient": norm,
        }

    def _base_logps(self, task: LearningTask, model: Any, rows: _Rows, part: slice) -> torch.Tensor:
        """Return the log-probabilities of the policy that the run began with; an adapter is switched off for it."""
        with torch.no_grad():
            if task.learning.lora_rank:
                with model.disable_adapter():
                    return _logps(model, rows, part)[0]
            digest = task.base.digest
            if self._base is None or self._base[0] != digest:
                self._base = (digest, load_weights(self._folder, task, self._device, base=True))
            return _logps(self._base[1].model, rows, part)[0]


def _advantages(task: LearningTask, rows: _Rows) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the advantage of every row, shape (B,). Groups of problems with other rewards are estimated apart."""
    kinds = [(group.weights, len(group.rollouts[0].rewards[0])) for group in task.groups]
    advantages = np.zeros(len(rows.groups))
    for number, kind in enumerate(dict.fromkeys(kinds)):
        mine = np.isin(rows.groups, [i for i, each in enumerate(kinds) if each == kind])
        advantages[mine] = ESTIMATORS[task.learning.estimator.value](
            np.array([rewards for rewards, is_mine in zip(rows.rewards, mine, strict=True) if is_mine]),
            rows.groups[mine],
            config=EstimatorConfig(
                weights=kind[0], draws=task.learning.draws, kappa=task.learning.kappa, step=task.step
            ),
            rng=np.random.default_rng([task.seed, task.step, *([number] if number else [])]),
        )
    return advantages


def _logps(model: Any, rows: _Rows, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies at every place, shape (b, L − 1); zero outside completions."""
    ids, written = rows.ids[part], rows.written[part]
    begin = int(written.any(dim=0).int().argmax())  # no completion begins before
    keep = written.shape[1] - begin
    logits = model(input_ids=ids, attention_mask=rows.mask[part], logits_to_keep=keep + 1).logits
    values = logps_and_entropies(logits[:, -keep - 1 : -1].float(), ids[:, -keep:])
    logps, entropies = (pad(each * written[:, begin:], (begin, 0)) for each in values)
    return logps, entropies


def _rows(task: LearningTask, tokenizer: Any, device: str) -> _Rows:
    rollouts = [(i, group, rollout) for i, group in enumerate(task.groups) for rollout in group.rollouts]
    if any(len(r.token_ids) != len(r.logprobs) or not r.token_ids for _, _, r in rollouts):
        raise LearningError("a completion was stored without its tokens or their log-probabilities.")
    prompts = [_prompt_ids(task, tokenizer, group.prompt) for group in task.groups]
    vocabulary = len(tokenizer)
    if any(max(r.token_ids) >= vocabulary for _, _, r in rollouts):
        raise LearningError(f"the server reports token ids beyond the {vocabulary} of the weights: another tokenizer.")
    ids = [torch.tensor([*prompts[i], *r.token_ids]) for i, _, r in rollouts]
    before = [torch.zeros(len(prompts[i]) - 1) for i, _, _ in rollouts]
    sampled = [torch.tensor(r.logprobs, dtype=torch.float32) for _, _, r in rollouts]
    written = [torch.ones_like(logprobs) for logprobs in sampled]
    return _Rows(
        pad_sequence(ids, batch_first=True).to(device),
        pad_sequence([torch.ones_like(row) for row in ids], batch_first=True).to(device),
        pad_sequence([*map(torch.cat, zip(before, written, strict=True))], batch_first=True).to(device),
        pad_sequence([*map(torch.cat, zip(before, sampled, strict=True))], batch_first=True).to(device),
        np.array([i for i, _, _ in rollouts], dtype=np.int64),
        torch.tensor([group.age for _, group, _ in rollouts]).to(device),
        [np.array(rollout.rewards, dtype=np.float64) for _, _, rollout in rollouts],
    )


def _prompt_ids(task: LearningTask, tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the tokens of what the client sends for a prompt."""
    request = SampleRequest(prompt, PolicyRole.PROPOSE, 1, 0)
    sent = client_options(task.base, OpenAICompatibleOptions).apply(payload_of(task.base, request))
    if "prompt" in sent:
        ids = tokenizer(sent["prompt"])["input_ids"]
    else:
        if tokenizer.chat_template is None:
            raise LearningError("the weights have no chat template: add the server's as chat_template.jinja.")
        messages = sent["messages"]
        opening = messages.pop()["content"] if messages[-1]["role"] == "assistant" else ""
        text = chat_text(tokenizer, messages, opening, **sent.get("chat_template_kwargs", {}))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [int(i) for i in ids]
