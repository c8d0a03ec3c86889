"""Compute log-probabilities of rollouts, processing the prompt that a group shares only once.

A prompt of a tiny task is two or three times as long as an answer, and a group has 8 to 24 rollouts: with single
answers, most of a plain pass processes the same prompts again. Here the keys and values of a prompt are computed once,
and every rollout of its group continues from them. Values and gradients equal those of the plain pass, up to the order
of addition.
"""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any, Final

import torch
from torch import Tensor

from speciate.training.losses import logps_and_entropies

_CACHE: Final = "cache"
_OLD_CACHE: Final = "past_key_values"
"""Name of the cache in transformers before 5.24."""
AT_ONCE: Final = 64
"""Rollouts in one part of a pass: enough for efficient matrix products, few enough for a CPU's cache."""


def shared_logps(
    model: Any, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, completion_mask: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of completions in nats, shape (B, T); zero at padding.

    Prompts, shape (B, P), are padded on the left, completions, shape (B, T), on the right; masks are 1 for tokens.
    Equal prompts are processed once.
    """
    rows = list(_parts(prompts, prompt_mask))
    parts = [
        _part(model, prompts[part], prompt_mask[part], completions[part], completion_mask[part], temperature)
        for part in rows
    ]
    back = torch.argsort(torch.cat(rows))
    return torch.cat([logps for logps, _ in parts])[back], torch.cat([entropies for _, entropies in parts])[back]


def _parts(prompts: Tensor, mask: Tensor) -> Iterator[Tensor]:
    """Yield the rows of each part: whole groups, with prompts of similar length together."""
    _, group = torch.unique(prompts, dim=0, return_inverse=True)
    keys = sorted(zip(mask.sum(1).tolist(), group.tolist(), range(len(group)), strict=True))
    part: list[int] = []
    for _, same in groupby(keys, key=lambda key: key[:2]):
        part += [row for _, _, row in same]
        if len(part) >= AT_ONCE:
            yield torch.tensor(part)
            part = []
    if part:
        yield torch.tensor(part)


def _part(
    model: Any, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, completion_mask: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    size = completions.shape[1]
    most, longest = int(prompt_mask.sum(1).max()), int(completion_mask.sum(1).max())
    prompts, prompt_mask = prompts[:, -most:], prompt_mask[:, -most:]
    completions, completion_mask = completions[:, :longest], completion_mask[:, :longest]
    once, group = torch.unique(torch.cat([prompts, prompt_mask], dim=1), dim=0, return_inverse=True)
    once, once_mask = once[:, :most], once[:, most:]
    read = model(
        input_ids=once,
        attention_mask=once_mask,
        position_ids=(once_mask.cumsum(1) - 1).clamp(min=0),
        use_cache=True,
        logits_to_keep=1,
    )
    cache = _CACHE if _CACHE in read else _OLD_CACHE
    read[cache].batch_select_indices(group)
    logits = [read.logits[group]]
    if longest > 1:
        positions = prompt_mask.sum(1, keepdim=True) + torch.arange(longest - 1, device=prompts.device)
        written = model(
            input_ids=completions[:, :-1],
            attention_mask=torch.cat([prompt_mask, completion_mask[:, :-1]], dim=1),
            position_ids=positions,
            use_cache=True,
            **{cache: read[cache]},
        )
        logits.append(written.logits)
    logps, entropies = logps_and_entropies(torch.cat(logits, dim=1) / temperature, completions)
    pad = partial(torch.nn.functional.pad, pad=(0, size - longest))
    return pad(logps * completion_mask), pad(entropies * completion_mask)
