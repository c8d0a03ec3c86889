"""Teach a language model the form of sets, supervised, before a training by reinforcement.

A reward can hardly teach it: the best of a set with one readable answer is as good as that of a set with three. The
examples are sets and single answers in equal numbers, in the exact form of the prompts. By default they are made of the
model's own readable single answers, so that the warm-up teaches a form and no content.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from speciate.domain.errors import InvalidInputError
from speciate.domain.values import digest_of
from speciate.policies.manifest import weights_digest, write_manifest
from speciate.prompts.compact import CLOSING, between_answers
from speciate.prompts.rejection import Reason
from speciate.training.arguments import in_bfloat16
from speciate.training.base import padded
from speciate.training.config import TrainConfig, WarmUpConfig
from speciate.training.models import load_model, writing
from speciate.training.recipe import Progress, as_json, check_tokenizer, is_complete, manifest_of, quiet
from speciate.training.run_files import CHECKPOINTS, last_checkpoint, write_identity, write_json
from speciate.training.tasks import Split, Task
from speciate.training.trainer import VectorTrainer

_AT_ONCE: Final = 4
_SAMPLED_AT_ONCE: Final = 32
_INPUTS: Final = ("input_ids", "labels", "attention_mask")
_OPENING: Final = "```python\n"

Example = tuple[str, str]


def warm_up(
    task: Task,
    config: TrainConfig,
    base: Path,
    folder: Path,
    *,
    resume: bool = False,
    cpu: bool = True,
    progress: Progress | None = None,
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
        return
    if PartialState().num_processes > 1:
        raise InvalidInputError("--warm-up: expected one process.", remedy=f"Warm up first, then pass --base {folder}.")
    with quiet():
        model, tokenizer = load_model(base)
        check_tokenizer(task, tokenizer, base)
        write_identity(identity, folder)
        sampler = _Sampler(task, config, chosen, model, tokenizer, folder, cpu=cpu)
        examples = sampler.examples(folder / CHECKPOINTS / "examples.json")
        gate, end = _Gate(chosen, sampler, progress), tokenizer.eos_token
        trainer = Trainer(
            model=model,
            args=_arguments(config, chosen, folder / CHECKPOINTS, cpu=cpu),
            train_dataset=[
                (tokenizer(prompt)["input_ids"], tokenizer(text + end, add_special_tokens=False)["input_ids"])
                for prompt, text in examples
            ],
            data_collator=lambda pairs: dict(zip(_INPUTS, padded(pairs, tokenizer.eos_token_id), strict=True)),
            callbacks=[gate],
        )
        trainer.remove_callback(PrinterCallback)
        # Complete with its state, which is written after weights and optimizer.
        last = last_checkpoint(folder, lambda path: path.joinpath("trainer_state.json").is_file())
        if last is not None or not gate.passes(0):
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        steps, share = int(gate.measured[-1]["step"]), gate.measured[-1]["readable"]
        if share < chosen.gate:
            raise InvalidInputError(
                f"the warm-up ended after {steps} updates with {share:.0%} of slots readable, and its gate is"
                f" {chosen.gate:.0%}.",
                remedy="Set warm_up.steps higher, or warm_up.gate lower, and continue with --resume.",
            )
        with writing(folder):
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    record = {"steps": steps, "readable": share, "gate": chosen.gate, "base_digest": identity["base_digest"]}
    manifest = manifest_of(
        task, replace(config, method="vpo"), identity | {"data_digest": digest_of(examples)}, gate.measured
    )
    with writing(folder):
        update = {"method": "warm-up", "steps": steps, "warm_up": record}
        write_manifest(folder, manifest.model_copy(update=update))
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
    ) -> None:
        self._task, self._chosen, self._m = task, chosen, task.answers
        self._problems = list(task.problems(Split.TRAIN, chosen.problems + chosen.held_out))
        self._count = max(1, len(self._problems) - chosen.held_out)
        plain = replace(config, use_vllm=False, kl=0.0, mutation_share=0.0, lora_rank=0, warm_up=None)
        single = replace(plain, method="grpo", max_tokens=-(-config.max_tokens // self._m))
        self._seed = config.seed

        def trainer(each: TrainConfig) -> VectorTrainer:
            return VectorTrainer(task, each, model, tokenizer, self._problems, folder, cpu=cpu, callbacks=[])

        self._singles, self._sets = trainer(single), trainer(replace(plain, method="vpo"))

    def share(self, step: int) -> float:
        """Return the share of readable slots in sets for held-out problems."""
        self._sets.rng = np.random.default_rng([self._seed, step])
        held_out = range(self._count, len(self._problems))
        sampled = self._sets.sample_answers(held_out or [0])
        reasons = [[a.failure and a.failure.reason for a in answers] for rollouts in sampled for answers in rollouts]
        # A repeated answer is in the form, too.
        readable = [sum(each in (None, Reason.DUPLICATE_IN_ROLLOUT) for each in slots) / self._m for slots in reasons]
        return float(np.mean(readable))

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
                raise InvalidInputError(
                    f"task {self._task.name!r} has no demonstrations.", remedy="Leave warm_up.demonstrations out."
                )
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
        """Return a set and a single answer, or nothing if there are too few programs in the form of the prompt."""
        single, several = (each.row(index) for each in (self._singles, self._sets))
        opening = several.get("opening") or _OPENING
        line = opening.removeprefix(_OPENING)
        bodies = [each.strip().removeprefix(line) for each in programs if each.strip().startswith(line)]
        if len(bodies) < self._m:
            return []
        head = "" if several.get("opening") else _OPENING
        drawn = [bodies[i] for i in rng.permutation(len(bodies))[: self._m]]
        texts = {single["prompt"]: drawn[0], several["prompt"]: between_answers(opening).join(drawn)}
        return [(prompt, f"{head}{text}{CLOSING}") for prompt, text in texts.items()]


class _Gate(TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy can see
    """Callback that measures the share of readable slots, and ends the warm-up when it suffices."""

    def __init__(self, chosen: WarmUpConfig, sampler: _Sampler, progress: Progress | None) -> None:
        self._chosen, self._sampler, self._progress = chosen, sampler, progress
        self.measured: list[dict[str, float]] = []

    def passes(self, step: int) -> bool:
        share = self._sampler.share(step)
        self.measured.append({"step": float(step), "readable": share})
        if self._progress is not None:
            self._progress(step, self._chosen.steps, {"readable": share})
        return share >= self._chosen.gate

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Keep the measurements in the state, which a resumed warm-up restores."""
        self.measured = [each for each in state.log_history if "readable" in each] or self.measured
        state.log_history = [*self.measured]

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._chosen.every == 0 or state.global_step == state.max_steps:
            control.should_save = True
            control.should_training_stop |= self.passes(state.global_step)
            state.log_history.append(self.measured[-1])


def _arguments(config: TrainConfig, chosen: WarmUpConfig, folder: Path, *, cpu: bool) -> TrainingArguments:
    at_once = next(size for size in range(min(_AT_ONCE, chosen.batch), 0, -1) if chosen.batch % size == 0)
    return TrainingArguments(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=chosen.batch // at_once,
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
