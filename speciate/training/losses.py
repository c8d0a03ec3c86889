"""Loss of a policy update: PPO's clipped objective and options that preserve entropy, as functions of tensors.

Shapes: B rollouts of at most T tokens. Options combine with every estimator of ``speciate.training.advantages`` and
with each other. Sources: Schulman et al., arXiv 1707.06347, section 3 (the clip); Cui et al., "The Entropy Mechanism of
Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617, section 4 (clip_cov, kl_cov); arXiv 2508.07629
(gppo).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from speciate.training.config import LossConfig

_MOST: Final = 20.0
"""Largest log-ratio: beyond it, the exponential of 32-bit numbers soon overflows or is 0."""


def token_losses(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, config: LossConfig, rng: torch.Generator
) -> Tensor:
    """Return the loss of every token, shape (B, T), to be minimised and averaged over tokens.

    ``old_logps`` are those of the policy that wrote the rollouts. Positive advantages, shape (B, 1) or (B, T), make
    tokens more likely. The mask is 1 for tokens of the completion. ``rng`` draws the tokens of ``clip_cov``.
    """
    losses = _clipped(logps, old_logps, advantages, config)
    if config.clip_cov == 0 and config.kl_cov == 0:
        return losses
    covariance = token_covariances(logps.detach(), advantages, mask)
    tokens = int(mask.sum())
    if config.clip_cov > 0:
        low, high = config.cov_range
        among = torch.nonzero(((covariance >= low) & (covariance <= high) & (mask > 0)).flatten())[:, 0]
        count = min(len(among), max(1, round(config.clip_cov * tokens)))
        dropped = among[torch.randperm(len(among), generator=rng)[:count].to(among.device)]
        weights = torch.ones_like(losses).flatten()
        weights[dropped] = 0.0
        losses = losses * weights.view_as(losses)
    if config.kl_cov > 0:
        count = max(1, round(config.kl_cov * tokens))
        ranked = torch.where(mask > 0, covariance, -torch.inf).flatten()
        highest = torch.topk(ranked, min(count, tokens)).indices
        penalty = torch.zeros_like(losses).flatten()
        penalty[highest] = config.kl_cov_coefficient * (logps - old_logps).abs().flatten()[highest]
        losses = losses + penalty.view_as(losses)
    return losses


def token_covariances(logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return (logπ_i − mean logπ)(A_i − mean A) of every token, shape (B, T); means are over the tokens (eq. 10)."""
    spread = advantages.expand_as(logps)
    count = mask.sum().clamp(min=1)
    centred = logps - (logps * mask).sum() / count
    return centred * (spread - (spread * mask).sum() / count) * mask


def logps_and_entropies(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens' log-probabilities and their distributions' entropies in nats, (B, T); logits are (B, T, V)."""
    every = torch.log_softmax(logits, dim=-1)
    return every.gather(2, ids.unsqueeze(2)).squeeze(2), -(every.exp() * every).sum(-1)


def low_variance_kl(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy ‖ reference) at every token, shape (B, T), ≥ 0 (Schulman 2020)."""
    difference = reference_logps - logps
    return torch.exp(difference) - difference - 1


def _clipped(logps: Tensor, old_logps: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    ratio = torch.exp(torch.clamp(logps - old_logps, -_MOST, _MOST))
    bounded = torch.clamp(ratio, 1 - config.clip, 1 + config.clip)
    if config.gppo:
        # The value of the clip, with the gradient of the ratio scaled to the bound where the clip has none.
        bounded = bounded.detach() * torch.exp(logps - logps.detach())
    return -torch.minimum(ratio * advantages, bounded * advantages)
