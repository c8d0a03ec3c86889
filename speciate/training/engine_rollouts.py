"""Write rollouts of tiny models on a CPU with the engine of the inference server.

The engine processes a prompt once for its whole group, and a rollout leaves the batch with its last token: twice as
fast as transformers' ``generate`` for models of this size. The same engine serves the policy later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.inference.checkpoint import Checkpoint, checkpoint_of
from speciate.inference.engine import Engine, GenerationRequest, SamplingParams

MAX_LIVE: Final = 256


def write_rollouts(
    model: Any,
    prompts: Sequence[tuple[Sequence[int], int, int]],
    *,
    close: int | None,
    end: int,
    temperature: float,
    seed: int,
) -> list[list[int]]:
    """Return a rollout for each prompt, including the token that ends it.

    Args:
        model: A Llama or Qwen2 model of transformers, on the CPU.
        prompts: Token ids, number of answers, and longest rollout in tokens.
        close: Token that closes an answer, so that the last answer's ends the rollout; None without such a token.
        end: Token that ends any rollout.
        temperature: Softmax temperature.
        seed: Seed of all randomness.

    Raises:
        ConfigurationError: The engine does not implement the model.
        InvalidInputError: A prompt with its rollout exceeds the model's context, or the model computes NaN.
    """
    checkpoint = _checkpoint(model, end)
    try:
        engine = Engine(checkpoint, max_live=MAX_LIVE)
    except ConfigurationError:
        raise InvalidInputError(
            "the training has diverged: its model computes NaN or infinity.",
            remedy="Start again in another folder with a smaller learning_rate.",
        ) from None
    requests = []
    for place, (asked, same) in enumerate(groupby(prompts, key=lambda one: (tuple(one[0]), *one[1:]))):
        prompt, answers, most = asked
        params = SamplingParams(n=len(list(same)), max_tokens=most, temperature=temperature, seed=seed + place)
        requests.append(
            GenerationRequest(prompt, params, _closed(close, answers) if answers > 1 and close is not None else None)
        )
    for request in requests:
        engine.check(request)
        engine.add(request)
    while not all(request.done for request in requests):
        engine.step()
    return [list(request.sampled[i].token_ids) for request in requests for i in range(request.params.n)]


def _checkpoint(model: Any, end: int) -> Checkpoint:
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    try:
        return checkpoint_of(Path("the model in training"), config, tensors, (end,))
    except ConfigurationError as error:
        raise ConfigurationError(
            str(error).removesuffix(f" {error.remedy}"),
            remedy="Write the rollouts with transformers: --set use_engine=false.",
        ) from None


def _closed(close: int, answers: int) -> Callable[[int, int], bool]:
    """Return a rule that ends a completion with its m-th closing token."""
    seen: Counter[int] = Counter()

    def ends(index: int, token: int) -> bool:
        seen[index] += token == close
        return seen[index] >= answers

    return ends
