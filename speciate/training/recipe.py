"""From a task and a method to a checkpoint: the base, the reinforcement run, its course and its manifest."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from pydantic import TypeAdapter
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.values import digest_of
from speciate.policies.manifest import MANIFEST, Manifest, read_manifest, weights_digest, write_manifest
from speciate.training.advantages import ESTIMATORS
from speciate.training.base import BaseConfig, train_base
from speciate.training.config import TrainConfig
from speciate.training.curve import draw_training_curve
from speciate.training.models import library_versions, load_model, writing
from speciate.training.tasks import GENERATED, GeneratedTask, Split, Task
from speciate.training.trainer import VectorTrainer, is_complete, trl_arguments

BASES: Final = {
    "maze": BaseConfig(problems=3000, steps=320, learning_rate=3e-3),
    "maze-9": BaseConfig(problems=3000, steps=600, learning_rate=3e-3),
    "programs": BaseConfig(problems=8000, steps=700, learning_rate=2e-3),
    "programs-hard": BaseConfig(problems=8000, steps=400, learning_rate=2e-3),
}
"""How the base of each grown task is trained."""

CHECKPOINTS: Final = "checkpoints"
RUN: Final = "run.json"
_DRAWN_EVERY: Final = 10
_MEASURED: Final = {
    "entropy": "entropy",
    "kl": "kl",
    "step_time": "step_time",
    "sampling/sampling_logp_difference/mean": "sampling_gap",
}
"""What TRL measures that is kept, with our name for it. The gap is |log p(vLLM) − log p(trainer)|, nats a token."""

_NAMES: Final = {
    "task": "another task",
    "config": "other choices",
    "base_digest": "another base",
    "data_digest": "other problems",
}
"""What makes a run another one, in words."""

Progress = Callable[[int, int, dict[str, float]], None]
"""Called after every update with its number, from 1, how many there will be, and measurements."""


def grow_base(task: GeneratedTask, config: BaseConfig, folder: Path, progress: Progress | None = None) -> None:
    """Train the base of a task, or keep the one that stands in the folder and was trained in the same way.

    Raises:
        ConflictError: The folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()):
        try:
            found = read_manifest(folder)
        except (NotFoundError, InvalidInputError):
            found = None
        if found is None or found.config != json.loads(json.dumps(asdict(config))) or found.task != task.name:
            raise ConflictError(
                f"{folder} holds something other than this base of task {task.name!r}.",
                remedy="Choose another folder with --out, or remove that one.",
            )
        return
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with writing(unfinished):
        unfinished.mkdir(parents=True)
    with _quiet():
        train_base(task, config, unfinished, lambda step, seen: progress and progress(step, config.steps, seen))
    with writing(folder):
        if not folder.exists():
            unfinished.rename(folder)
            return
        # It may be where the command was started, or another disk: it stays, and its manifest comes last.
        for path in sorted(unfinished.iterdir(), key=lambda path: path.name == MANIFEST):
            shutil.move(path, folder / path.name)
        unfinished.rmdir()


def check_run(task: Task, config: TrainConfig, folder: Path, *, resume: bool = False) -> bool:
    """Refuse what cannot become a run before anything is computed or written; tell whether it is complete already.

    Raises:
        ConflictError: As ``train_policy``, or the folder cannot be written.
        InvalidInputError: Choices of the estimator do not fit the task, or vLLM is to write and is not there.
    """
    if config.use_vllm and importlib.util.find_spec("vllm") is None:
        raise InvalidInputError(
            "use_vllm is set, and vLLM is not installed where this runs.",
            remedy="Install it beside speciate[train] in an environment of its own (docs/howto/train-on-your-data.md),"
            " or leave use_vllm out.",
        )
    # Only an estimator knows which of its choices do not fit: it is shown a group of rollouts.
    rng, k = np.random.default_rng(0), len(task.rewards)
    rewards = rng.random((config.group, task.answers if config.multi_answer else 1, k))
    goals = [[1 / k] * k] if config.method == "goal_conditioned" else None
    ESTIMATORS[config.method](
        rewards, np.zeros(config.group, np.int64), config=replace(config.estimator, goals=goals), rng=rng
    )
    place = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ConflictError(
            f"{folder} cannot be written: {place} is {'read-only' if place.is_dir() else 'no folder'}.",
            remedy="Choose another folder with --out.",
        )
    return _is_complete({"task": task.name, "config": as_json(config)}, folder, resume=resume)


def train_policy(
    task: Task,
    config: TrainConfig,
    base: Path,
    folder: Path,
    *,
    resume: bool = False,
    cpu: bool = True,
    progress: Progress | None = None,
) -> None:
    """Train a policy by reinforcement and write its checkpoint with manifest and pictures of its course.

    Args:
        task: Makes and scores problems.
        config: Choices.
        base: Folder of the model to begin with, which is also what the KL divergence is measured from.
        folder: Where the result goes; checkpoints of the run are in ``checkpoints`` until it is complete.
        resume: Go on from the last checkpoint in ``folder``.
        cpu: Whether to use no GPU.
        progress: Hears of every update.

    Raises:
        ConflictError: The folder holds a run, and ``resume`` is not set; or one with other choices or problems; or a
            file cannot be written, or one of the checkpoint to go on from cannot be read.
        InvalidInputError: The model cannot be loaded, memory does not suffice, or the training has diverged; or as
            ``check_run``.
    """
    from accelerate import PartialState

    check_run(task, config, folder, resume=resume)
    identity = {"task": task.name, "config": as_json(config), "base_digest": weights_digest(base)}
    if _is_complete(identity, folder, resume=resume):
        return
    with _quiet():
        model, tokenizer = load_model(base)
        _check_tokenizer(task, tokenizer, base)
        problems = list(task.problems(Split.TRAIN, config.problems))
        identity["data_digest"] = digest_of([problem.digest for problem in problems])
        # Again, now that the problems are known: a run that goes on has those that it began with.
        _is_complete(identity, folder, resume=resume)
        processes = PartialState()
        processes.wait_for_everyone()  # all have looked before one of them writes
        if processes.is_main_process:
            _note(identity, folder)
        watch = _ProgressCallback(config, folder, progress)
        trainer = VectorTrainer(
            model=model,
            tokenizer=tokenizer,
            task=task,
            problems=problems,
            config=config,
            args=trl_arguments(
                config,
                task,
                folder / CHECKPOINTS,
                processes=int(processes.num_processes),
                cpu=cpu,
                context=getattr(model.config, "max_position_embeddings", None),
            ),
            callbacks=[watch],
            peft_config=_lora(config),
        )
        trainer.remove_callback(PrinterCallback)
        last = last_checkpoint(folder)
        if last is not None:
            trainer.restore(last)
        try:
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        except Exception as error:  # what reads and what computes raise whatever they like
            if _is_out_of_memory(error):
                raise InvalidInputError(
                    f"memory did not suffice for {config.micro_batch or config.batch} rollouts at once: {error}",
                    remedy=f"Set micro_batch to a smaller multiple of {config.group}, then --resume.",
                ) from error
            if last is not None and not watch.begun:
                raise ConflictError(
                    f"the checkpoint {last} cannot be read: {error}",
                    remedy="Remove its folder: --resume goes on from the one before, or begins anew.",
                ) from error
            raise
        if not trainer.is_world_process_zero():
            return
        history = course(trainer.state.log_history)
        with writing(folder):
            trainer.save_model(str(folder))
    with writing(folder):
        folder.joinpath("training_args.bin").unlink(missing_ok=True)  # a pickle: nobody should have to trust it
        draw_training_curve(history, folder / "training_curve.svg", f"{task.name}, {config.method}, seed {config.seed}")
        write_manifest(
            folder,
            Manifest(
                task=task.name,
                method=config.method,
                codec=task.codec,
                max_tokens=task.max_tokens + 1 if task.codec is not None else config.max_tokens,
                answers_per_rollout=task.answers if config.multi_answer else 1,
                seed=config.seed,
                steps=config.steps,
                config=as_json(config),
                base_digest=weights_digest(base),
                data_digest=identity["data_digest"],
                versions=library_versions(),
                metrics=tuple(history),
            ),
        )
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)
    shutil.rmtree(folder / CHECKPOINTS)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of an unfinished run, or None."""
    found = [path for path in folder.glob(f"{CHECKPOINTS}/checkpoint-*") if is_complete(path)]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def course(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the measurements of every step from what TRL logged."""
    kept = []
    for entry in log:
        values = {_MEASURED.get(n, n.removeprefix("speciate/")): v for n, v in entry.items() if _is_ours(n, v)}
        if "mean" in values or "mutation_mean" in values:
            kept.append({"step": float(entry["step"]), **{n: round(float(v), 5) for n, v in values.items()}})
    return kept


def as_json(config: TrainConfig) -> dict[str, Any]:
    """Return the choices as JSON values."""
    value: dict[str, Any] = TypeAdapter(TrainConfig).dump_python(config, mode="json")
    return value


def _is_complete(identity: dict[str, Any], folder: Path, *, resume: bool) -> bool:
    """Tell whether the very same run is complete in the folder; False means that it may begin there, or go on."""
    written, complete = folder / CHECKPOINTS / RUN, (folder / MANIFEST).is_file()
    if complete or written.is_file():
        found = read_manifest(folder).model_dump() if complete else _noted(written)
        # How much is computed at once makes no other run of it: one that lacked memory goes on with less.
        found["config"]["micro_batch"] = identity["config"]["micro_batch"]
        # Runs that were begun before their problems were noted have none.
        if other := [_NAMES[name] for name, value in identity.items() if found.get(name, value) != value]:
            raise ConflictError(
                f"{folder} holds a run with {' and '.join(other)}.",
                remedy="Choose another folder with --out, or remove it.",
            )
        if not complete and not resume:
            raise ConflictError(
                f"{folder} holds an unfinished run.", remedy="Go on with --resume, or remove the folder."
            )
    elif folder.exists() and any(folder.iterdir()):
        raise ConflictError(f"{folder} is not empty.", remedy="Choose another folder with --out.")
    return complete


def _note(identity: dict[str, Any], folder: Path) -> None:
    """Write down which run has begun in the folder."""
    path = folder / CHECKPOINTS / RUN
    draft = path.with_suffix(".new")
    with writing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_text(json.dumps(identity), "utf-8")
            draft.replace(path)
        except OSError:  # an empty folder is one in which a run may begin
            draft.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()
            raise


def _noted(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ConflictError(
            f"{path}, which says what run has begun there, is not JSON: {error}.",
            remedy="Choose another folder with --out, or remove that one.",
        ) from None
    return found


def _check_tokenizer(task: Task, tokenizer: Any, base: Path) -> None:
    """Refuse a model that cannot be asked: every token of a tiny task would be an unknown one to it."""
    if task.codec is None:
        if tokenizer.chat_template is None:
            raise InvalidInputError(
                f"the model in {base} has no chat template, and task {task.name!r} is asked in messages.",
                remedy="Take a model that was trained for chat, or put its chat_template.jinja beside it.",
            )
    elif missing := sorted(set(GENERATED[task.name].vocabulary()) - set(tokenizer.get_vocab())):
        raise InvalidInputError(
            f"the tokenizer in {base} lacks {len(missing)} tokens of task {task.name!r}, such as {missing[0]!r}.",
            remedy="Begin with a base of that task: leave out --base to have one grown.",
        )


def _is_out_of_memory(error: Exception) -> bool:
    # On a processor torch raises a plain RuntimeError.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _is_ours(name: str, value: object) -> bool:
    return isinstance(value, int | float) and (name.startswith("speciate/") or name in _MEASURED)


def _lora(config: TrainConfig) -> Any:
    if config.lora_rank == 0:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_rank, lora_alpha=2 * config.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )


class _ProgressCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy can see
    """Tells of every update, and draws the course whenever a checkpoint is written."""

    def __init__(self, config: TrainConfig, folder: Path, progress: Progress | None) -> None:
        self._config, self._folder, self._progress = config, folder, progress
        self.begun = False

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Hear that all of a checkpoint has been read."""
        self.begun = True

    def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """Stop before weights are kept that no training comes back from."""
        if all(torch.isfinite(part).all() for part in model.parameters() if part.requires_grad):
            return
        raise InvalidInputError(
            f"the training has diverged: after update {state.global_step} of {state.max_steps} its weights hold NaN or"
            " infinity.",
            remedy="Begin in another folder with a smaller learning_rate.",
        )

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Hear of an update."""
        values = course([{**(logs or {}), "step": state.global_step}])
        if values and self._progress is not None and state.is_world_process_zero:
            self._progress(-(-state.global_step // self._config.updates), self._config.steps, values[0])

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Draw what there is so far; a picture of every step would take a tenth of the time."""
        history = course(state.log_history)
        if len(history) >= 3 and state.global_step % _DRAWN_EVERY == 0 and state.is_world_process_zero:
            with writing(self._folder):
                title = f"{self._config.method}, seed {self._config.seed}"
                draw_training_curve(history, self._folder / "training_curve.svg", title)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and warnings about their own future out of ours, and torch to one core.

    Matrices of this size gain nothing from a second core, and lose a factor of six where it is busy; and sums in one
    order are the same sums every time.
    """
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield
