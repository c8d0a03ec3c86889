"""Losses: PPO's clip, the entropy options against their formulas, and gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from speciate.domain.errors import InvalidInputError  # noqa: E402
from speciate.training.config import LossConfig, TrainConfig  # noqa: E402
from speciate.training.losses import low_variance_kl, token_covariances, token_losses  # noqa: E402

MASK = torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
ADVANTAGES = torch.tensor([[1.0], [-2.0], [0.5]])


def logps(seed=0):
    return torch.log_softmax(torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(seed)), -1)[..., 0]


def losses(config, new, old, seed=0):
    return token_losses(new, old, ADVANTAGES, MASK, config, torch.Generator().manual_seed(seed))


def gradients(config, new, old):
    new = new.clone().requires_grad_()
    (losses(config, new, old) * MASK).sum().backward()
    return new.grad


def test_one_update_is_the_plain_policy_gradient():
    new = logps()
    assert torch.allclose(gradients(LossConfig(), new, new), -ADVANTAGES * MASK)


def test_the_clip_stops_only_growing_ratios():
    old = logps()
    shift = torch.tensor([[0.5, -0.5, 0.0, 0], [0.5, -0.5, 0.1, -0.1], [0.3, 0, 0, 0]])
    got = gradients(LossConfig(clip=0.2), old + shift, old)
    ratio = torch.exp(shift)
    away = ((ratio > 1.2) & (ADVANTAGES > 0)) | ((ratio < 0.8) & (ADVANTAGES < 0))
    assert torch.allclose(got, torch.where(away, 0.0, -ADVANTAGES * ratio) * MASK)
    assert away[0, 0]
    assert not away[0, 1]


def test_gppo_keeps_the_value_and_a_bounded_gradient():
    old = logps()
    shift = torch.tensor([[1.0, -1.0, 0.0, 0], [1.0, -1.0, 0.1, -0.1], [0.3, 0, 0, 0]])
    plain, kept = LossConfig(), LossConfig(gppo=True)
    assert torch.allclose(losses(plain, old + shift, old), losses(kept, old + shift, old))
    bound = torch.clamp(torch.exp(shift), 0.8, 1.2)
    away = ((bound == 1.2) & (ADVANTAGES > 0)) | ((bound == 0.8) & (ADVANTAGES < 0))
    expected = torch.where(away, -ADVANTAGES * bound, -ADVANTAGES * torch.exp(shift)) * MASK
    assert torch.allclose(gradients(kept, old + shift, old), expected, atol=1e-6)


@pytest.mark.parametrize("gppo", [False, True])
@pytest.mark.parametrize("shift", [120.0, -120.0])
def test_extreme_ratios_have_finite_losses_and_gradients(gppo, shift):
    old = logps()
    config = LossConfig(gppo=gppo)
    assert torch.isfinite(losses(config, old + shift, old)).all()
    got = gradients(config, old + shift, old)
    assert torch.isfinite(got).all()
    bound = 1.2 if shift > 0 else 0.8
    away = (ADVANTAGES > 0) if shift > 0 else (ADVANTAGES < 0)
    assert torch.allclose(got, torch.where(away, -ADVANTAGES * bound * gppo, 0.0) * MASK)


def test_a_penalty_without_effect_is_refused():
    loss = LossConfig(kl_cov=0.002)
    with pytest.raises(InvalidInputError, match=r"loss\.kl_cov = 0\.002 has no effect with updates = 1") as refused:
        TrainConfig("grpo", loss=loss)
    assert "Set updates to 2 or more" in str(refused.value.remedy)
    assert TrainConfig("grpo", loss=loss, updates=2).updates == 2


def test_covariances_are_those_of_the_definition():
    new = logps()
    found = token_covariances(new, ADVANTAGES, MASK).numpy()
    inside = MASK.numpy() > 0
    p, a = new.numpy()[inside], np.broadcast_to(ADVANTAGES.numpy(), (3, 4))[inside]
    assert np.allclose(found[inside], (p - p.mean()) * (a - a.mean()), atol=1e-6)
    assert found[inside].mean() == pytest.approx(np.cov(p, a, ddof=0)[0, 1], abs=1e-6)
    assert (found[~inside] == 0).all()


def test_clip_cov_drops_the_gradient_of_a_share_of_the_tokens_in_range():
    new = logps()
    config = LossConfig(clip_cov=0.25, cov_range=(-100, 100))
    got = gradients(config, new, new)
    dropped = (got == 0) & (MASK > 0)
    assert int(dropped.sum()) == 2  # a quarter of eight tokens
    none = gradients(LossConfig(clip_cov=0.25, cov_range=(99, 100)), new, new)
    assert torch.allclose(none, -ADVANTAGES * MASK)


def test_kl_cov_penalises_the_tokens_of_highest_covariance():
    old = logps()
    new = old + 0.05
    extra = losses(LossConfig(kl_cov=0.25, kl_cov_coefficient=3.0), new, old) - losses(LossConfig(), new, old)
    covariance = torch.where(MASK > 0, token_covariances(new, ADVANTAGES, MASK), -torch.inf)
    highest = torch.zeros(12).index_fill(0, torch.topk(covariance.flatten(), 2).indices, 1.0).view(3, 4)
    assert torch.allclose(extra, 3.0 * 0.05 * highest, atol=1e-6)


def test_options_combine():
    old = logps()
    config = LossConfig(gppo=True, clip_cov=0.2, cov_range=(-100, 100), kl_cov=0.2, entropy_bonus=0.01)
    assert torch.isfinite(losses(config, old + 0.4, old)).all()


def test_the_divergence_is_non_negative_and_unbiased():
    torch.manual_seed(0)
    policy, reference = torch.log_softmax(torch.randn(2, 6), -1)
    exact = float((policy.exp() * (policy - reference)).sum())
    estimate = low_variance_kl(policy, reference)
    assert (estimate >= 0).all()
    assert float((policy.exp() * estimate).sum()) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip": 0.0},
        {"clip_cov": 2.0},
        {"kl_cov": -0.1},
        {"cov_range": (3.0, 1.0)},
        {"cov_range": (np.nan, 1.0)},
        {"kl_cov_coefficient": np.inf},
        {"entropy_bonus": np.nan},
    ],
)
def test_invalid_options_are_refused_by_name(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        LossConfig(**wrong)
