"""Loss of a policy update and its parts, as functions of tensors. Shapes: B rollouts of at most T tokens."""

from typing import Final

import torch
from torch import Tensor

_MOST: Final = 20.0
"""Largest log-ratio: beyond it, the exponential of 32-bit numbers soon overflows or is 0."""


def clipped_losses(logps: Tensor, old_logps: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped loss of every token (arXiv 1707.06347, section 3), shape (B, T), to be minimised.

    ``old_logps`` are those of the policy that wrote the rollouts. Positive advantages, shape (B, 1) or (B, T), make
    tokens more likely.
    """
    ratio = torch.exp(torch.clamp(logps - old_logps, -_MOST, _MOST))
    return -torch.minimum(ratio * advantages, torch.clamp(ratio, 1 - clip, 1 + clip) * advantages)


def logps_and_entropies(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens' log-probabilities and their distributions' entropies in nats, (B, T); logits are (B, T, V).

    Entropies have no gradient: it would keep two more tensors of the logits' size.
    """
    every = torch.log_softmax(logits, dim=-1)
    with torch.no_grad():
        entropies = -(every.exp() * every).sum(-1)
    return every.gather(2, ids.unsqueeze(2)).squeeze(2), entropies


def low_variance_kl(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy ‖ reference) at every token, shape (B, T), ≥ 0 (Schulman 2020)."""
    difference = reference_logps - logps
    return torch.exp(difference) - difference - 1
