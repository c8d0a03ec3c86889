"""A pass with shared prompts has the values and gradients of a plain pass."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from speciate.training import shared_prompts  # noqa: E402
from speciate.training.models import new_model, new_tokenizer  # noqa: E402
from speciate.training.shared_prompts import shared_logps  # noqa: E402

TEMPERATURE = 0.8


@pytest.fixture
def model():
    model = new_model(new_tokenizer([f"w{i}" for i in range(40)]), seed=3)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(3.0)  # far from uniform, so that a wrong position or mask is detected
    return model


def batch(groups, *, seed=0, longest_prompt=17, longest=9):
    """Rows of groups, in random order: prompts padded on the left, completions on the right."""
    draw = torch.Generator().manual_seed(seed)

    def whole(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=draw))

    rows = []
    for size in groups:
        prompt = torch.randint(3, 40, (whole(1, longest_prompt),), generator=draw)
        rows += [(prompt, torch.randint(1, 40, (whole(1, longest),), generator=draw)) for _ in range(size)]
    rows = [rows[i] for i in torch.randperm(len(rows), generator=draw)]
    width, length = longest_prompt + 2, longest + 1
    ids = torch.zeros(len(rows), width + length, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(rows):
        for values, begin in ((prompt, width - len(prompt)), (completion, width)):
            ids[row, begin : begin + len(values)] = values
            mask[row, begin : begin + len(values)] = 1
    return ids.tensor_split([width], dim=1), mask.tensor_split([width], dim=1)


def plain(model, ids, mask):
    logits = model(input_ids=torch.cat(ids, dim=1), attention_mask=torch.cat(mask, dim=1)).logits
    every = torch.log_softmax(logits[:, ids[0].shape[1] - 1 : -1] / TEMPERATURE, dim=-1)
    logps = every.gather(2, ids[1].unsqueeze(2)).squeeze(2)
    return logps * mask[1], -(every.exp() * every).sum(-1) * mask[1]


def gradients(model, logps):
    model.zero_grad()
    weights = torch.linspace(-1, 1, logps.numel()).view_as(logps)
    (logps * weights).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("groups", [[1], [8] * 4, [24] * 5, [1, 2, 3, 40, 5], [100]])
@pytest.mark.parametrize("at_once", [1, 64])
def test_values_and_gradients_are_those_of_a_plain_pass(model, monkeypatch, groups, at_once):
    monkeypatch.setattr(shared_prompts, "AT_ONCE", at_once)
    ids, mask = batch(groups)
    expected = plain(model, ids, mask)
    found = shared_logps(model, ids[0], mask[0], ids[1], mask[1], TEMPERATURE)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == ids[1].shape
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert expected[0].std() > 0.5
    right = gradients(model, expected[0])
    torch.testing.assert_close(gradients(model, found[0]), right, atol=1e-4 * float(right.abs().max()), rtol=1e-3)


def test_single_token_completions_need_only_their_prompt(model):
    ids, mask = batch([4, 4], longest=1)
    found = shared_logps(model, ids[0], mask[0], ids[1], mask[1], TEMPERATURE)
    torch.testing.assert_close(found[0], plain(model, ids, mask)[0], atol=1e-4, rtol=1e-4)


def test_each_prompt_is_read_once(model):
    ids, mask = batch([8] * 6)
    read = []
    forward = model.forward

    def counted(**asked):
        read.append(asked["input_ids"].shape)
        return forward(**asked)

    model.forward = counted
    shared_logps(model, ids[0], mask[0], ids[1], mask[1], TEMPERATURE)
    prompts, completions = read[::2], read[1::2]
    assert sum(rows for rows, _ in prompts) == 6
    assert sum(rows for rows, _ in completions) == 48
