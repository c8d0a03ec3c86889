"""Record the log-probabilities by which an endpoint of a trained model is recognised."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from speciate.domain.policy import Trace
from speciate.policies.verification import POSITIONS

_STORED: Final = (24, 8)
"""Likeliest tokens at the first and at further positions: more than an endpoint reports, since the last ones may change
places, and at the first position, which all weights share, to compare changes."""


def trace(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Trace:
    """Return the likeliest tokens along the greedy continuation of each prompt, computed in float32."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        traced = tuple(_traced(model, tokenizer, prompt) for prompt in prompts)
    model.train(was_training)
    return traced


def _traced(model: Any, tokenizer: Any, prompt: str) -> tuple[dict[str, float], ...]:
    ids = list(tokenizer(prompt)["input_ids"])
    positions = []
    for place in range(POSITIONS):
        logits = model(input_ids=torch.tensor([ids], device=model.device)).logits[0, -1].float()
        values, tokens = torch.log_softmax(logits, 0).topk(min(_STORED[place > 0], len(logits)))
        # The likeliest last: of tokens that share a text, as parts of characters do, it counts.
        pairs = zip(tokens.tolist()[::-1], values.tolist()[::-1], strict=True)
        positions.append({tokenizer.decode([token]) or f"token_id:{token}": round(value, 5) for token, value in pairs})
        ids.append(int(tokens[0]))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return tuple(positions)
