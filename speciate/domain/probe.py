"""Probes: a few prompts with the log-probabilities that a trained model and its base continue them with."""

from __future__ import annotations

from speciate.domain.values import Finite, Value

Trace = tuple[tuple[dict[str, Finite], ...], ...]
"""For each prompt and each position of its greedy continuation, the likeliest tokens with their log-probabilities."""


class Probe(Value):
    """What tells from an endpoint's answers which weights it samples from."""

    prompts: tuple[str, ...]
    """Prompts as completion endpoints read them."""
    trained: Trace
    """Of the trained weights, at the end of the training."""
    base: Trace
    """Of the weights that the training began with."""
