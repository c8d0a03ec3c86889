"""Losses: PPO's clip, its gradients, and the divergence."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from pydantic import ValidationError  # noqa: E402

from speciate.training.config import TrainConfig  # noqa: E402
from speciate.training.losses import clipped_losses, low_variance_kl  # noqa: E402

MASK = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
ADVANTAGES = torch.tensor([[1.0], [-2.0], [0.5]])


def logps(seed=0):
    return torch.log_softmax(torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(seed)), -1)[..., 0]


def losses(new, old):
    return clipped_losses(new, old, ADVANTAGES, 0.2)


def gradients(new, old):
    new = new.clone().requires_grad_()
    (losses(new, old) * MASK).sum().backward()
    return new.grad


def test_one_update_is_the_plain_policy_gradient():
    new = logps()
    assert torch.allclose(gradients(new, new), -ADVANTAGES * MASK)


def test_the_clip_stops_only_growing_ratios():
    old = logps()
    shift = torch.tensor([[0.5, -0.5, 0.0, 0], [0.5, -0.5, 0.1, -0.1], [0.3, 0, 0, 0]])
    got = gradients(old + shift, old)
    ratio = torch.exp(shift)
    away = ((ratio > 1.2) & (ADVANTAGES > 0)) | ((ratio < 0.8) & (ADVANTAGES < 0))
    assert torch.allclose(got, torch.where(away, 0.0, -ADVANTAGES * ratio) * MASK)
    assert away[0, 0]
    assert not away[0, 1]


@pytest.mark.parametrize("shift", [120.0, -120.0])
def test_extreme_ratios_have_finite_losses_and_gradients(shift):
    old = logps()
    assert torch.isfinite(losses(old + shift, old)).all()
    got = gradients(old + shift, old)
    assert (got == 0).all()


def test_the_divergence_is_non_negative_and_unbiased():
    torch.manual_seed(0)
    policy, reference = torch.log_softmax(torch.randn(2, 6), -1)
    exact = float((policy.exp() * (policy - reference)).sum())
    estimate = low_variance_kl(policy, reference)
    assert (estimate >= 0).all()
    assert float((policy.exp() * estimate).sum()) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("clip", [0.0, 1.0, np.nan])
def test_an_invalid_clip_is_refused(clip):
    with pytest.raises(ValidationError, match="clip"):
        TrainConfig("grpo", clip=clip)
