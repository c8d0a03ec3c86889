"""Train the base of a task from scratch, supervised: the start of every reinforcement run.

Each training problem gives three kinds of examples: single demonstrations, one rollout with m of them, and mutations of
a parent, without which evolution hardly beats independent sampling.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from speciate.domain.candidate import Individual
from speciate.domain.values import digest_of
from speciate.policies.manifest import Manifest, write_manifest
from speciate.prompts.codecs import Codec, codec_of
from speciate.prompts.codecs.codec import CLOSE
from speciate.training.models import AT_ONCE, END, library_versions, new_model, new_tokenizer, save_model, writing
from speciate.training.tasks import GeneratedTask, Split

_SINGLES: Final = 4
_CHILDREN: Final = 4
_IGNORED: Final = -100


@dataclass(frozen=True)
class BaseConfig:
    seed: int = 0
    problems: int = 4000
    steps: int = 450
    """Updates."""
    batch: int = 128
    """Sequences of an update."""
    learning_rate: float = 3e-3
    """Peak; warmed up over 5 % of the steps, then a cosine down to a tenth."""
    sets: bool = True
    """Also demonstrate sets of answers. Without them a policy trained for sets has to find their format itself."""


Progress = Callable[[int, dict[str, float]], None]
"""Called after every update with its number (from 1) and measurements."""


def train_base(task: GeneratedTask, config: BaseConfig, folder: Path, progress: Progress | None = None) -> None:
    tokenizer = new_tokenizer(task.vocabulary())
    model = new_model(tokenizer, config.seed)
    texts = list(demonstrations(task, config.problems, np.random.default_rng([config.seed, 1]), sets=config.sets))
    encoded = [(tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"]) for prompt, answer in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _warm_cosine(step, config.steps))
    batches = _batches(encoded, config.batch, tokenizer.pad_token_id, np.random.default_rng([config.seed, 2]))
    metrics = []
    model.train()
    for step in range(1, config.steps + 1):
        parts = next(batches)
        learnt = sum(int((labels[:, 1:] != _IGNORED).sum()) for _, labels, _ in parts)
        loss = 0.0
        for ids, labels, mask in parts:
            part = model(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=learnt).loss
            part.backward()
            loss += float(part.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        seen = {"loss": loss}
        if progress is not None:
            progress(step, seen)
        if step % 10 == 0 or step == config.steps:
            metrics.append({"step": float(step), **seen})
    with writing(folder):
        save_model(model, tokenizer, folder)
        write_manifest(
            folder,
            Manifest(
                task=task.name,
                method="base",
                codec=task.codec,
                max_tokens=task.max_tokens + 1,
                answers_per_rollout=1,
                seed=config.seed,
                steps=config.steps,
                config=asdict(config),
                data_digest=digest_of(texts),
                versions=library_versions(),
                metrics=tuple(metrics),
            ),
        )


def demonstrations(
    task: GeneratedTask, count: int, rng: np.random.Generator, *, sets: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield prompts with answers, seven for most training problems."""
    codec = codec_of(str(task.codec))
    for problem in task.problems(Split.TRAIN, count):
        examples = [_tokens(codec, task.demonstrate(problem, rng)) for _ in range(_SINGLES + task.answers)]
        single = codec.prompt(problem, answers=1)
        for answer in examples[:_SINGLES]:
            yield single, f"{answer} {END}"
        if sets:
            many = "".join(f"{answer} {CLOSE} " for answer in examples[_SINGLES:])
            yield codec.prompt(problem, answers=task.answers), f"{many}{END}"
        for _ in range(_CHILDREN):
            if (pair := task.improve(problem, rng)) is not None:
                parent = Individual(1, pair[0], task.score([(problem, [pair[0]])])[0][0])
                yield codec.prompt(problem, answers=1, parent=parent), f"{_tokens(codec, pair[1])} {END}"


def _tokens(codec: Codec, candidate: str) -> str:
    return " ".join(codec.write(candidate) or ())


def _batches(
    encoded: list[tuple[list[int], list[int]]], size: int, pad: int, rng: np.random.Generator
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]]:
    """Yield batches forever, in parts of sequences of similar length, which saves a third of the padding.

    A part is three tensors (rows, T): see ``padded``.
    """
    while True:
        order = rng.permutation(len(encoded))
        for start in range(0, len(order) - size + 1, size):
            batch = sorted((encoded[i] for i in order[start : start + size]), key=lambda one: len(one[0]) + len(one[1]))
            yield [padded(batch[i : i + AT_ONCE], pad) for i in range(0, size, AT_ONCE)]


def padded(pairs: list[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, labels of the answers only, and the mask of pairs of a prompt and its answer."""
    ids = [torch.tensor([*prompt, *answer]) for prompt, answer in pairs]
    labels = [torch.tensor([*[_IGNORED] * len(prompt), *answer]) for prompt, answer in pairs]
    return (
        pad_sequence(ids, batch_first=True, padding_value=pad),
        pad_sequence(labels, batch_first=True, padding_value=_IGNORED),
        pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    )


def _warm_cosine(step: int, steps: int) -> float:
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return float(0.1 + 0.45 * (1 + np.cos(np.pi * (step - warm) / max(1, steps - warm))))
