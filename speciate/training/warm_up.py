"""Teach a language model the form of sets, supervised, before a training by reinforcement.

A reward can hardly teach it: the best of a set with one readable answer is as good as that of a set with three. The
examples are sets and single answers in equal numbers, in the exact form of the prompts. By default they are made of the
model's own readable single answers, so that the warm-up teaches a form and no content.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from math import gcd
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.values import digest_of
from speciate.policies.manifest import read_manifest, weights_digest, write_manifest
from speciate.prompts.compact import CLOSING, between_answers
from speciate.prompts.parse import Answer
from speciate.prompts.rejection import Reason
from speciate.training.arguments import in_bfloat16
from speciate.training.config import TrainConfig, WarmUpConfig
from speciate.training.models import load_model, save_model, writing
from speciate.training.recipe import Progress, as_json, check_tokenizer, is_complete, manifest_of, quiet
from speciate.training.run_files import CHECKPOINTS, last_checkpoint, write_identity, write_json
from speciate.training.shared_prompts import shared_logps
from speciate.training.tasks import Split, Task, problems_of
from speciate.training.trainer import VectorTrainer

_AT_ONCE: Final = 16
_SAMPLED_AT_ONCE: Final = 32
_OPENING: Final = "```python\n"

Example = tuple[str, str]
Sampled = Sequence[Sequence[Sequence[Answer]]]
"""Answers by problem, rollout and place."""
Judge = Callable[[Sequence[Problem], Sampled, Sampled], dict[str, float]]
"""Function of held-out problems, single answers and sets that returns what the gate measures besides readable slots;
without 1 for ``ready`` the gate is not passed."""


def warm_up(
    task: Task,
    config: TrainConfig,
    base: Path,
    folder: Path,
    *,
    resume: bool = False,
    cpu: bool = True,
    progress: Progress | None = None,
    judge: Judge | None = None,
) -> None:
    """Warm up the model in ``base`` and write it to ``folder``, with the gate in its manifest; nothing if it is there.

    Raises:
        ConflictError: The folder holds another run, or an unfinished one and ``resume`` is False.
        InvalidInputError: The gate was not reached, the task needs none, or there are several processes.
    """
    from accelerate import PartialState

    chosen = config.warm_up or WarmUpConfig()
    if task.codec is not None or task.answers == 1:
        raise InvalidInputError(f"--warm-up: the bases of task {task.name!r} know the form of sets already.")
    # More steps or another gate continue an unfinished warm-up.
    same = {name: value for name, value in asdict(chosen).items() if name not in ("steps", "gate")}
    identity = {"task": task.name, "config": as_json(config) | {"warm_up": same}, "base_digest": weights_digest(base)}
    if is_complete(identity, folder, resume=resume):
        if float(str(read_manifest(folder).warm_up["readable"])) < chosen.gate:
            remedy = "Remove it, or choose another --out."
            raise ConflictError(f"{folder} holds a warm-up that misses a gate of {chosen.gate:.0%}.", remedy=remedy)
        return
    if PartialState(cpu=cpu).num_processes > 1:
        raise InvalidInputError("--warm-up: expected one process.", remedy=f"Warm up first, then pass --base {folder}.")
    with quiet():
        model, tokenizer = load_model(base)
        check_tokenizer(task, tokenizer, base)
        write_identity(identity, folder)
        sampler = _Sampler(task, config, chosen, model, tokenizer, folder, cpu=cpu, judge=judge)
        examples = sampler.examples(folder / CHECKPOINTS / "examples.json")
        gate, end = _Gate(chosen, sampler, progress), tokenizer.eos_token
        encoded = [
            (tokenizer(prompt)["input_ids"], tokenizer(text + end, add_special_tokens=False)["input_ids"])
            for prompt, text in examples
        ]
        trainer = _Trainer(
            model=model,
            args=_arguments(config, chosen, folder / CHECKPOINTS, cpu=cpu),
            train_dataset=[encoded[i : i + 2 * chosen.pairs] for i in range(0, len(encoded), 2 * chosen.pairs)],
            data_collator=_collate,
            callbacks=[gate],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.model_accepts_loss_kwargs = True  # so that the tokens of an update are counted for ``compute_loss``
        # Complete with its state, which is written after weights and optimizer.
        last = last_checkpoint(folder, lambda path: path.joinpath("trainer_state.json").is_file())
        if last is not None:
            history = json.loads(last.joinpath("trainer_state.json").read_text("utf-8"))["log_history"]
            gate.measured = [each for each in history if "readable" in each]
        if last is not None and (gate.passed or gate.measured[-1]["step"] >= chosen.steps):
            trainer._load_from_checkpoint(str(last))  # transformers would make one more update
        elif last is not None or not gate.passes(0):
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        steps, share = int(gate.measured[-1]["step"]), gate.measured[-1]["readable"]
        if not gate.passed:
            further = "".join(f", {name} {value:.3g}" for name, value in gate.measured[-1].items())
            raise InvalidInputError(
                f"the warm-up ended after {steps} updates with {share:.0%} of slots readable, and its gate is"
                f" {chosen.gate:.0%}{further if judge else ''}.",
                remedy="Set warm_up.steps higher, or warm_up.gate lower, and continue with --resume.",
            )
        with writing(folder):
            save_model(model, tokenizer, folder)
    record = {"steps": steps, "readable": share, "gate": chosen.gate, "base_digest": identity["base_digest"]}
    manifest = manifest_of(
        task, replace(config, method="vpo"), identity | {"data_digest": digest_of(examples)}, gate.measured
    )
    with writing(folder):
        write_manifest(folder, manifest.model_copy(update={"method": "warm-up", "steps": steps, "warm_up": record}))
    shutil.rmtree(folder / CHECKPOINTS)


class _Sampler:
    """Samples single answers and sets of a model by the means of its later training, and makes examples of them."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        chosen: WarmUpConfig,
        model: Any,
        tokenizer: Any,
        folder: Path,
        *,
        cpu: bool,
        judge: Judge | None,
    ) -> None:
        self._task, self._chosen, self._m, self.judge = task, chosen, task.answers, judge
        self._problems = problems_of(task, Split.TRAIN, chosen.problems + chosen.held_out)
        self._count = max(1, len(self._problems) - chosen.held_out)
        plain = replace(config, use_vllm=False, kl=0.0, mutation_share=0.0, lora_rank=0, warm_up=None)
        single = replace(plain, method="grpo", max_tokens=-(-config.max_tokens // self._m))
        self._seed = config.seed

        def trainer(each: TrainConfig) -> VectorTrainer:
            return VectorTrainer(task, each, model, tokenizer, self._problems, folder, cpu=cpu, callbacks=[])

        self._singles, self._sets = trainer(single), trainer(replace(plain, method="vpo"))

    def measure(self, step: int) -> dict[str, float]:
        """Return what the gate measures on held-out problems: ``readable``, the share of readable slots in sets."""
        held_out = range(self._count, len(self._problems)) or [0]
        sets = self._sampled(self._sets, step, held_out)
        reasons = [[a.failure and a.failure.reason for a in answers] for rollouts in sets for answers in rollouts]
        # A repeated answer is in the form, too.
        readable = [sum(each in (None, Reason.DUPLICATE_IN_ROLLOUT) for each in slots) / self._m for slots in reasons]
        measured = {"readable": float(np.mean(readable))}
        if self.judge is not None:
            singles = self._sampled(self._singles, step, held_out)
            measured |= self.judge([self._problems[i] for i in held_out], singles, sets)
        return measured

    def _sampled(self, trainer: VectorTrainer, step: int, indices: Sequence[int]) -> Sampled:
        trainer.rng = np.random.default_rng([self._seed, step])
        return trainer.sample_answers(indices)

    def examples(self, path: Path) -> list[Example]:
        """Return the examples in a file, which is written first if it does not exist."""
        if not path.is_file():
            rng = np.random.default_rng([self._seed, 0])
            made = [each for index, programs in self._pools() for each in self._examples(index, programs, rng)]
            if not made:
                raise InvalidInputError(
                    f"no problem of task {self._task.name!r} has {self._m} different readable answers.",
                    remedy="Use the task's own programs: --set warm_up.demonstrations=true, or a stronger base.",
                )
            with writing(path.parent):
                write_json(path, made)
        examples: list[Example] = json.loads(path.read_text("utf-8"))
        return examples

    def _pools(self) -> list[tuple[int, list[str]]]:
        """Return different programs for each problem: demonstrations, and the model's own answers if they are few."""
        pools: dict[int, dict[str, None]] = {index: {} for index in range(self._count)}
        if self._chosen.demonstrations:
            solutions = getattr(self._task, "with_solutions", None)
            if solutions is None:
                raise InvalidInputError(f"task {self._task.name!r} has no demonstrations: leave them out.")
            for index, (_, programs) in enumerate(solutions(Split.TRAIN, self._count)):
                pools[index].update(dict.fromkeys(programs))
        few = [index for index, programs in pools.items() if len(programs) < self._m]
        for start in range(0, len(few), _SAMPLED_AT_ONCE):
            part = few[start : start + _SAMPLED_AT_ONCE]
            for index, rollouts in zip(part, self._singles.sample_answers(part), strict=True):
                valid = [each.program for answers in rollouts for each in answers if each.failure is None]
                pools[index].update(dict.fromkeys(valid))
        return [(index, list(programs)) for index, programs in pools.items()]

    def _examples(self, index: int, programs: Sequence[str], rng: np.random.Generator) -> list[Example]:
        """Return pairs of a single answer and a set, or nothing if too few programs are in the form of the prompt."""
        single, several = (each.row(index) for each in (self._singles, self._sets))
        opening = several.get("opening") or _OPENING
        line = opening.removeprefix(_OPENING)
        bodies = [each.strip().removeprefix(line) for each in programs if each.strip().startswith(line)]
        if len(bodies) < self._m:
            return []
        head = "" if several.get("opening") else _OPENING
        examples = []
        for _ in range(self._chosen.pairs):
            drawn = [bodies[i] for i in rng.permutation(len(bodies))[: self._m]]
            texts = {single["prompt"]: drawn[0], several["prompt"]: between_answers(opening).join(drawn)}
            examples += [(prompt, f"{head}{text}{CLOSING}") for prompt, text in texts.items()]
        return examples


class _Trainer(Trainer):  # type: ignore[misc]  # transformers has no types that mypy can see
    """Trainer that reads the prompts of a problem once; single answers and sets apart, since their lengths differ."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing(Path(self.args.output_dir)):
            super()._save_checkpoint(model, trial)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, num_items_in_batch: Any) -> torch.Tensor:
        logps = [
            shared_logps(model, prompts, prompt_mask, answers, mask, 1.0)[0].sum()
            for prompts, prompt_mask, answers, mask in inputs["forms"]
        ]
        return -sum(logps) / num_items_in_batch


def _collate(problems: list[list[tuple[list[int], list[int]]]]) -> dict[str, Any]:
    """Return prompts, answers and their masks for each form, and all tokens of answers, which transformers counts."""
    forms = [list(zip(*(pair for pairs in problems for pair in pairs[i::2]), strict=True)) for i in (0, 1)]
    labels = torch.tensor([token for _, answers in forms for answer in answers for token in answer])
    padded = [(*_padded(prompts, "left"), *_padded(answers, "right")) for prompts, answers in forms]
    return {"forms": padded, "labels": labels}


def _padded(rows: Sequence[list[int]], side: str) -> tuple[torch.Tensor, ...]:
    parts = ([torch.tensor(row) for row in rows], [torch.ones(len(row), dtype=torch.long) for row in rows])
    return tuple(pad_sequence(part, batch_first=True, padding_side=side) for part in parts)


class _Gate(TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy can see
    """Callback that measures sampled answers, and ends the warm-up when they suffice."""

    def __init__(self, chosen: WarmUpConfig, sampler: _Sampler, progress: Progress | None) -> None:
        self._chosen, self._sampler, self._progress = chosen, sampler, progress
        self.measured: list[dict[str, float]] = []

    @property
    def passed(self) -> bool:
        last = self.measured[-1]
        return last["readable"] >= self._chosen.gate and last.get("ready", float(self._sampler.judge is None)) >= 1.0

    def passes(self, step: int) -> bool:
        measured = self._sampler.measure(step)
        self.measured.append({"step": float(step), **measured})
        if self._progress is not None:
            self._progress(step, self._chosen.steps, measured)
        return self.passed

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Keep the measurements in the state, from which a resumed warm-up reads them."""
        state.log_history = [*self.measured]

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._chosen.every == 0 or state.global_step == state.max_steps:
            control.should_save = True
            control.should_training_stop |= self.passes(state.global_step)
            state.log_history.append(self.measured[-1])


def _arguments(config: TrainConfig, chosen: WarmUpConfig, folder: Path, *, cpu: bool) -> TrainingArguments:
    problems = chosen.batch // (2 * chosen.pairs)
    at_once = gcd(problems, max(1, _AT_ONCE // (2 * chosen.pairs)))
    return TrainingArguments(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=problems // at_once,
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        use_cpu=cpu,
        bf16=in_bfloat16(config, cpu=cpu),
        save_strategy="no",  # the gate saves
        save_total_limit=2,
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
