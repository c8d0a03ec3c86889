"""Completions of many prompts, computed in the calling thread."""

from __future__ import annotations

from collections.abc import Sequence

from speciate.inference import Engine, GenerationRequest, SampledCompletion, SamplingParams


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    n: int = 1,
    max_tokens: int = 16,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seeds: Sequence[int] | None = None,
) -> list[list[SampledCompletion]]:
    """Return n completions for each prompt.

    A prompt's tokens depend on its seed (0, 1, 2, … by default) and not on the other prompts; log-probabilities differ
    by rounding at most.
    """
    requests = [
        GenerationRequest(tuple(prompt), SamplingParams(n, max_tokens, temperature, top_p, seed))
        for prompt, seed in zip(prompts, range(len(prompts)) if seeds is None else seeds, strict=True)
    ]
    engine.run(requests)
    return [[request.sampled[i] for i in range(n)] for request in requests]
