"""Write rollouts of tiny models on a CPU with the engine of the inference server, and end rollouts by rules.

The engine processes a prompt once for its whole group, and a rollout leaves the batch with its last token: twice as
fast as transformers' ``generate`` for models of this size. The same engine serves the policy later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile, zip_longest
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.inference.checkpoint import Checkpoint, checkpoint_of
from speciate.inference.engine import Engine, GenerationRequest, Insertion, Rule, SamplingParams
from speciate.prompts.compact import between_answers, ended_answers

MAX_LIVE: Final = 256


@dataclass(frozen=True)
class Rollout:
    """Tokens of a rollout, with the one that ends it."""

    ids: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    """1 for a token of the policy, 0 for one of a scaffold."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each token if the sampler reports them; 0 for those of a scaffold."""

    def extend(self, ids: Sequence[int], rule: Rule | None, logprobs: Sequence[float] = ()) -> bool:
        """Add sampled tokens up to where ``rule`` ends or inserts; return True if the rollout goes on after these."""
        for token, logprob in zip_longest(ids, logprobs[: len(ids)], fillvalue=0.0):
            if outcome := self.add(int(token), rule, logprob=logprob):
                return isinstance(outcome, Insertion)
        return False

    def add(self, token: int, rule: Rule | None, index: int = 0, *, logprob: float = 0.0) -> bool | Insertion:
        """Add a sampled token and what ``rule`` inserts after it; return the rule's outcome."""
        self.ids.append(token)
        self.written.append(1)
        self.logprobs.append(logprob)
        outcome = rule is not None and rule(index, token)
        if isinstance(outcome, Insertion):
            kept = len(self.ids) - outcome.dropped
            self.ids[kept:] = outcome.tokens
            self.written[kept:] = [0] * len(outcome.tokens)
            self.logprobs[kept:] = [0.0] * len(outcome.tokens)
        return outcome


class BlockRule:
    """Rule that ends a rollout with its last answer; the prompt ends with ``opening``.

    With ``limit``, the most tokens of an answer, it scaffolds: after each answer but the last it writes what stands
    between two. The policy's own tokens stay as far as they are the same, so that it can learn where an answer ends.
    """

    def __init__(
        self, tokenizer: Tokenizer, answers: int, opening: str, *, end: int = -1, limit: int | None = None
    ) -> None:
        self._tokenizer, self._opening, self._end, self._limit = tokenizer, opening, end, limit
        self._turns = answers if limit is not None else 1
        self._answers = answers // self._turns
        self._between = between_answers(opening)
        self._turn: Counter[int] = Counter()
        self._ids: defaultdict[int, list[int]] = defaultdict(list)
        self._texts: defaultdict[int, str] = defaultdict(str)
        self._streams: dict[int, DecodeStream] = {}

    @property
    def longest(self) -> int:
        """Most tokens of a rollout with a scaffold."""
        return self._turns * (self._limit or 0) + (self._turns - 1) * len(self._encoded(self._between))

    def __call__(self, index: int, token: int) -> bool | Insertion:
        self._ids[index].append(token)
        stream = self._streams.setdefault(index, DecodeStream(skip_special_tokens=True))
        self._texts[index] += stream.step(self._tokenizer, token) or ""
        ended = ended_answers(self._opening + self._texts[index], self._opening)
        complete = len(ended) >= self._answers
        cut = self._limit is not None and (token == self._end or len(self._ids[index]) >= self._limit)
        if not complete and not cut:
            return False
        self._turn[index] += 1
        if self._turn[index] == self._turns:
            return True
        end = ended[self._answers - 1][1] - len(self._opening) if complete else None
        del self._streams[index]
        return self._insertion(self._ids.pop(index), self._texts.pop(index)[:end].rstrip())

    def _insertion(self, ids: list[int], answer: str) -> Insertion:
        kept = len(ids)
        while kept and len(self._text(ids[: kept - 1])) >= len(answer):
            kept -= 1
        rest = (answer + self._between).removeprefix(self._text(ids[:kept]))
        # A token may hold the end of an answer together with further line breaks.
        written = self._encoded(rest if len(rest) <= len(self._between) else self._between.lstrip("\n"))
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids[kept:], written, strict=False)))
        return Insertion(len(ids) - kept - same, tuple(written[same:]))

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _text(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class ClosingRule:
    """Rule that ends a rollout with the closing token of its last answer."""

    def __init__(self, close: int, answers: int) -> None:
        self._close, self._answers = close, answers
        self._seen: Counter[int] = Counter()

    def __call__(self, index: int, token: int) -> bool:
        self._seen[index] += token == self._close
        return self._seen[index] >= self._answers


def write_rollouts(
    model: Any,
    prompts: Sequence[tuple[Sequence[int], int, Rule | None]],
    *,
    ends: Collection[int],
    temperature: float,
    seed: int,
) -> list[Rollout]:
    """Return a rollout for each prompt: token ids, longest rollout, and rule, which equal prompts share.

    The model is a Llama or Qwen2 of transformers, with an adapter of PEFT or without. A rollout ends with one of
    the tokens ``ends`` or by its rule.
    """
    checkpoint = _checkpoint(model, ends)
    try:
        engine = Engine(checkpoint, max_live=MAX_LIVE)
    except ConfigurationError:
        raise InvalidInputError(
            "the training has diverged: its model computes NaN or infinity.",
            remedy="Start again in another folder with a smaller learning_rate.",
        ) from None
    requests: list[GenerationRequest] = []
    for _, group in groupby(prompts, key=lambda one: (tuple(one[0]), one[1])):
        same = list(group)
        prompt, most, rule = same[0]
        params = SamplingParams(n=len(same), max_tokens=most, temperature=temperature, seed=seed + len(requests))
        requests.append(GenerationRequest(tuple(prompt), params, rule))
    engine.run(requests)
    rollouts = [request.sampled[i] for request in requests for i in range(request.params.n)]
    return [Rollout([*r.token_ids], [int(i not in r.inserted) for i in range(len(r.token_ids))]) for r in rollouts]


def _checkpoint(model: Any, ends: Collection[int]) -> Checkpoint:
    plain = base_of(model)
    config = model.config.to_dict() | {"architectures": [type(plain).__name__]}
    tensors = {name: tensor.numpy() for name, tensor in merged(plain)}
    try:
        return checkpoint_of(Path("the model in training"), config, tensors, tuple(ends))
    except ConfigurationError as error:
        raise ConfigurationError(
            str(error).removesuffix(f" {error.remedy}"),
            remedy="Write the rollouts with transformers: --set use_engine=false.",
        ) from None


def base_of(model: Any) -> Any:
    """Return the model of transformers within one of PEFT, with the adapter's layers in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def merged(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the weights of a model by name, each with the change that an adapter makes to it."""
    adapted = {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}
    for name, part in adapted.items():
        own = part.base_layer.state_dict()
        yield from ((f"{name}.{each}", tensor) for each, tensor in own.items() if each != "weight")
        yield f"{name}.weight", own["weight"] + part.get_delta_weight("default").detach()
    for name, tensor in model.state_dict().items():
        if not name.startswith(tuple(f"{place}." for place in adapted)):
            yield name, tensor.detach()
