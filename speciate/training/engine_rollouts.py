"""Write rollouts of tiny models on a CPU with the engine of the inference server.

The engine processes a prompt once for its whole group, and a rollout leaves the batch with its last token: twice as
fast as transformers' ``generate`` for models of this size. The same engine serves the policy later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.inference.checkpoint import Checkpoint, checkpoint_of
from speciate.inference.engine import Engine, GenerationRequest, SamplingParams
from speciate.prompts.compact import ended_answers

MAX_LIVE: Final = 256


Rule = Callable[[int, int], bool]
"""Called with the index of a completion and its next token; True ends it."""


def block_rule(tokenizer: Tokenizer, answers: int, opening: str) -> Rule:
    """Return a rule that ends a rollout with its last answer; the prompt ends with ``opening``."""
    replies: dict[int, str] = {}
    streams: dict[int, DecodeStream] = {}

    def ends(index: int, token: int) -> bool:
        stream = streams.setdefault(index, DecodeStream(skip_special_tokens=True))
        replies[index] = replies.get(index, opening) + (stream.step(tokenizer, token) or "")
        return len(ended_answers(replies[index], opening)) >= answers

    return ends


def write_rollouts(
    model: Any,
    prompts: Sequence[tuple[Sequence[int], int, int]],
    *,
    close: int | None,
    end: int,
    temperature: float,
    seed: int,
    rules: Sequence[Rule | None] = (),
) -> list[list[int]]:
    """Return a rollout for each prompt (token ids, number of answers, longest rollout), with the token that ends it.

    The model is a Llama or Qwen2 of transformers, with an adapter of PEFT or without. A rollout ends with the token
    ``end``, with the ``close`` of its last answer, or by its rule in ``rules``, which equal prompts share.
    """
    checkpoint = _checkpoint(model, end)
    try:
        engine = Engine(checkpoint, max_live=MAX_LIVE)
    except ConfigurationError:
        raise InvalidInputError(
            "the training has diverged: its model computes NaN or infinity.",
            remedy="Start again in another folder with a smaller learning_rate.",
        ) from None
    requests: list[GenerationRequest] = []
    groups = groupby(prompts, key=lambda one: (tuple(one[0]), *one[1:]))
    for place, ((prompt, answers, most), same) in enumerate(groups):
        params = SamplingParams(n=len(list(same)), max_tokens=most, temperature=temperature, seed=seed + place)
        rule = _closed(close, answers) if answers > 1 and close is not None else None
        further = rules[sum(request.params.n for request in requests)] if rules else None
        requests.append(GenerationRequest(prompt, params, further or rule))
    engine.run(requests)
    return [list(request.sampled[i].token_ids) for request in requests for i in range(request.params.n)]


def _checkpoint(model: Any, end: int) -> Checkpoint:
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = model.config.to_dict() | {"architectures": [type(plain).__name__]}
    tensors = {name: tensor.numpy() for name, tensor in _merged(plain)}
    try:
        return checkpoint_of(Path("the model in training"), config, tensors, (end,))
    except ConfigurationError as error:
        raise ConfigurationError(
            str(error).removesuffix(f" {error.remedy}"),
            remedy="Write the rollouts with transformers: --set use_engine=false.",
        ) from None


def _merged(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights of a model by name, each with the change that an adapter makes to it."""
    adapted = {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}
    for name, part in adapted.items():
        own = part.base_layer.state_dict()
        yield from ((f"{name}.{each}", tensor) for each, tensor in own.items() if each != "weight")
        yield f"{name}.weight", own["weight"] + part.get_delta_weight("default").detach()
    for name, tensor in model.state_dict().items():
        if not name.startswith(tuple(f"{place}." for place in adapted)):
            yield name, tensor.detach()


def _closed(close: int, answers: int) -> Rule:
    """Return a rule that ends a completion with its m-th closing token."""
    seen: Counter[int] = Counter()

    def ends(index: int, token: int) -> bool:
        seen[index] += token == close
        return seen[index] >= answers

    return ends
