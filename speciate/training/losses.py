"""The loss of a policy update: PPO's clipped objective and the options that keep entropy up, as functions of tensors.

Shapes: B rollouts of at most T tokens. Options combine with every estimator of ``speciate.training.advantages`` and
with each other. Sources: Schulman et al., arXiv 1707.06347, section 3 (the clip); Cui et al., "The Entropy Mechanism of
Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617, section 4 (clip_cov, kl_cov); arXiv 2508.07629
(gppo).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from speciate.domain.errors import InvalidInputError


@dataclass(frozen=True)
class LossConfig:
    """Choices of the loss; the defaults are the recipe of arXiv 2605.22817.

    Attributes:
        clip: ε of PPO: ratios outside 1 ± ε have no gradient where that would lead them further away.
        gppo: Whether clipped tokens keep a bounded gradient instead of none.
        clip_cov: Share of all tokens whose gradient is dropped, drawn among those whose covariance of log-probability
            and advantage lies within ``cov_range``; 0 for none. The paper takes 2e-4.
        cov_range: Lowest and highest covariance of tokens that ``clip_cov`` draws from.
        kl_cov: Share of all tokens, those with the highest covariance, that get a penalty for moving away from what
            they were; 0 for none. The paper takes 2e-4 to 2e-3.
        kl_cov_coefficient: Weight of that penalty.
        entropy_bonus: Weight of the mean entropy of the tokens, which is added to what is maximised.
    """

    clip: float = 0.2
    gppo: bool = False
    clip_cov: float = 0.0
    cov_range: tuple[float, float] = (1.0, 5.0)
    kl_cov: float = 0.0
    kl_cov_coefficient: float = 1.0
    entropy_bonus: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.clip < 1:
            raise InvalidInputError(f"clip = {self.clip}: expected a number between 0 and 1.")
        for name in ("clip_cov", "kl_cov"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"{name} = {getattr(self, name)}: expected a share of the tokens, 0 to 1.")
        if self.cov_range[0] > self.cov_range[1]:
            raise InvalidInputError(f"cov_range = {self.cov_range}: expected the lower end first.")


def token_losses(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, config: LossConfig, rng: torch.Generator
) -> Tensor:
    """Return the loss of every token, to be averaged over tokens.

    Args:
        logps: Shape (B, T): log-probabilities under the policy that is trained; gradients flow through them.
        old_logps: Shape (B, T): those under the policy that wrote the rollouts; no gradient.
        advantages: Shape (B, 1) or (B, T); positive ones make tokens more likely.
        mask: Shape (B, T): 1 for tokens of the completion, 0 for padding.
        config: Choices.
        rng: Chooses the tokens of ``clip_cov``.

    Returns:
        Shape (B, T), to be minimised.
    """
    ratio = torch.exp(logps - old_logps)
    losses = _clipped(ratio, advantages, config)
    if config.clip_cov == 0 and config.kl_cov == 0:
        return losses
    covariance = token_covariances(logps.detach(), advantages, mask)
    tokens = int(mask.sum())
    if config.clip_cov > 0:
        low, high = config.cov_range
        among = torch.nonzero(((covariance >= low) & (covariance <= high) & (mask > 0)).flatten())[:, 0]
        count = min(len(among), max(1, round(config.clip_cov * tokens)))
        chosen = among[torch.randperm(len(among), generator=rng)[:count].to(among.device)]
        kept = torch.ones_like(losses).flatten()
        kept[chosen] = 0.0
        losses = losses * kept.view_as(losses)
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


def low_variance_kl(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy ‖ reference) at every token, shape (B, T), ≥ 0 (Schulman 2020)."""
    difference = reference_logps - logps
    return torch.exp(difference) - difference - 1


def _clipped(ratio: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    bounded = torch.clamp(ratio, 1 - config.clip, 1 + config.clip)
    if config.gppo:
        # The same value, with the gradient of the ratio, scaled to the bound, where the clip would leave none.
        bounded = bounded.detach() * ratio / ratio.detach()
    return -torch.minimum(ratio * advantages, bounded * advantages)
