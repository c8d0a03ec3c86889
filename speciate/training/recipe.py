"""Produce a checkpoint from a task and a method: base, reinforcement run and manifest."""

import importlib.util
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from pydantic import TypeAdapter
from transformers import TrainerCallback, TrainerState

from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.policy import Probe
from speciate.domain.values import digest_of
from speciate.policies.manifest import MANIFEST, Manifest, manifest_in, read_manifest, weights_digest, write_manifest
from speciate.training.advantages import ESTIMATORS
from speciate.training.arguments import turns
from speciate.training.base import BaseConfig, train_base
from speciate.training.config import TrainConfig
from speciate.training.diagnosis import RewardDiagnosis
from speciate.training.models import library_versions, load_model, save_model, writing
from speciate.training.probe import trace
from speciate.training.reward_batch import EstimatorConfig
from speciate.training.run_files import CHECKPOINTS, identity_file, last_checkpoint, read_identity, write_identity
from speciate.training.tasks import GENERATED, GeneratedTask, Split, Task, problems_of
from speciate.training.trainer import VectorTrainer

BASES: Final = {
    "maze": BaseConfig(problems=3000, steps=320, learning_rate=3e-3),
    "maze-9": BaseConfig(problems=3000, steps=600, learning_rate=3e-3),
    "programs": BaseConfig(problems=8000, steps=700, learning_rate=2e-3),
    "programs-hard": BaseConfig(problems=8000, steps=400, learning_rate=2e-3),
}

_MEASURED: Final = {name: name for name in ("entropy", "kl", "step_time")} | {
    "sampling/sampling_logp_difference/mean": "sampling_gap"
}
"""TRL's measurements that are kept, with their new names."""

_NAMES: Final = {"task": "another task", "base_digest": "another base", "data_digest": "other problems"}

Progress = Callable[[int, int, dict[str, float]], None]
"""Called after every update with its number (from 1), the total number of updates, and measurements."""


def ensure_base(task: GeneratedTask, config: BaseConfig, folder: Path, progress: Progress | None = None) -> None:
    """Train the base of a task unless the folder already holds it; ``ConflictError`` if it holds something else."""
    if folder.exists() and any(folder.iterdir()):
        present = manifest_in(folder)
        if present is None or present.config != json.loads(json.dumps(asdict(config))) or present.task != task.name:
            raise ConflictError(
                f"{folder} does not hold this base of task {task.name!r}.",
                remedy="Remove it, or choose an --out in another directory.",
            )
        return
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with writing(unfinished):
        unfinished.mkdir(parents=True)
    with quiet():
        train_base(task, config, unfinished, lambda step, seen: progress and progress(step, config.steps, seen))
    with writing(folder):
        # The folder may be the working directory or a mount point, so it stays; the manifest is moved last.
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(unfinished.iterdir(), key=lambda path: path.name == MANIFEST):
            shutil.move(path, folder / path.name)
        unfinished.rmdir()


def check_run(task: Task, config: TrainConfig, folder: Path, *, resume: bool = False) -> bool:
    """Check a run before anything is computed or written; return True if it is already complete."""
    if config.use_vllm and importlib.util.find_spec("vllm") is None:
        raise InvalidInputError(
            "use_vllm is set, and vLLM is not installed in this environment.",
            remedy="Install speciate[train,vllm] in an environment of its own (docs/howto/train-on-your-data.md).",
        )
    # Only the estimator can check its configuration, so it is called with one group of random rewards.
    used = set[str]()

    class Noted(EstimatorConfig):
        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return super().__getattribute__(name)

    rng, k = np.random.default_rng(0), len(task.rewards)
    rewards = rng.random((config.group, task.answers if config.multi_answer else 1, k))
    noted = Noted(**asdict(config.estimator))
    used.clear()
    ESTIMATORS[config.method](rewards, np.zeros(config.group, np.int64), config=noted, rng=rng)
    changed = (each.name for each in fields(EstimatorConfig) if getattr(config.estimator, each.name) != each.default)
    idle = {f"method {config.method}": [f"estimator.{name}" for name in changed if name not in used - {"step"}]}
    if task.codec is not None:
        english = ("max_prompt_tokens", "max_tokens", "prompt_style", "warm_up")
        idle[f"task {task.name}"] = [name for name in english if getattr(config, name) != getattr(TrainConfig, name)]
    if config.mutation_share == 0:
        changes = ("mutation_kl", "remembered")
        idle["mutation_share = 0"] = [name for name in changes if getattr(config, name) != getattr(TrainConfig, name)]
    for owner, names in idle.items():
        if names:
            raise InvalidInputError(f"{owner} does not use {' and '.join(names)}: leave it out.")
    place = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ConflictError(
            f"cannot write {folder}: {place} is {'read-only' if place.is_dir() else 'not a folder'}.",
            remedy="Choose another folder with --out.",
        )
    return is_complete({"task": task.name, "config": as_json(config)}, folder, resume=resume)


def train_policy(
    task: Task,
    config: TrainConfig,
    base: Path,
    folder: Path,
    *,
    resume: bool = False,
    cpu: bool = True,
    progress: Progress | None = None,
    begin: Callable[[str], None] | None = None,
) -> None:
    """Train a policy by reinforcement; write its checkpoint and manifest.

    ``base`` is the folder of the initial model, also the reference of the KL divergence. With ``resume`` the run
    continues from the last checkpoint in ``folder/checkpoints``, which is deleted when the run is complete. ``begin``
    is called before the first update with a sentence about its size.

    Raises:
        ConflictError: The folder holds an unfinished run and ``resume`` is False, or another run; or a file cannot be
            written, or the last checkpoint cannot be read.
        InvalidInputError: The model cannot be loaded, memory is insufficient, or the training has diverged.
    """
    from accelerate import PartialState

    check_run(task, config, folder, resume=resume)
    problems = problems_of(task, Split.TRAIN, config.problems)
    plain = all(o.role == "objective" and o.maximized and o.range == (0, 1) for p in problems for o in p.objectives)
    if config.unsolved_only and not plain:
        raise InvalidInputError("unsolved_only: expected objectives that are maximized from 0 to 1, and no others.")
    identity = {"task": task.name, "config": as_json(config), "base_digest": weights_digest(base)}
    identity["data_digest"] = digest_of([problem.digest for problem in problems])
    if is_complete(identity, folder, resume=resume):
        return
    with quiet():
        model, tokenizer = load_model(base)
        check_tokenizer(task, tokenizer, base)
        processes = PartialState(cpu=cpu)
        processes.wait_for_everyone()  # all must have checked before one of them writes
        if processes.is_main_process:
            write_identity(identity, folder)
        watch = _ProgressCallback(config, progress)
        trainer = VectorTrainer(task, config, model, tokenizer, problems, folder, cpu=cpu, callbacks=[watch])
        last = last_checkpoint(folder)
        prompts = _probe_prompts(trainer, folder, begun=last is not None)
        before = trace(trainer.accelerator.unwrap_model(trainer.model), tokenizer, prompts)
        if last is not None:
            trainer.restore(last)
        if begin is not None and processes.is_main_process:
            tokens = trainer.args.max_completion_length * turns(task, config)
            begin(
                f"{len(problems):,} problems; {config.steps} updates of {config.batch} rollouts, each of at most"
                f" {tokens:,} tokens; threads: {torch.get_num_threads()}"
            )
        try:
            if last is not None and last.name == f"checkpoint-{trainer.args.max_steps}":
                # Killed after its last update. transformers would make one more.
                trainer._load_from_checkpoint(str(last))
                trainer.state = TrainerState.load_from_json(str(last / "trainer_state.json"))
            else:
                trainer.train(resume_from_checkpoint=None if last is None else str(last))
        except Exception as error:  # torch, transformers and TRL raise their own types
            explained = _explained(
                error, config, trainer.args.per_device_train_batch_size, None if watch.begun else last
            )
            if explained is None:
                raise
            raise explained from error
        if not trainer.is_world_process_zero():
            trainer.accelerator.wait_for_everyone()  # for the manifest: a launcher ends all if one fails
            return
        history = training_curve(trainer.state.log_history)
        after = trace(trainer.accelerator.unwrap_model(trainer.model), tokenizer, prompts)
        with writing(folder):
            save_model(trainer.accelerator.unwrap_model(trainer.model), tokenizer, folder)
    with writing(folder):
        manifest = manifest_of(task, config, identity, history)
        probe = Probe(prompts=tuple(prompts), trained=after, base=before)
        origin = manifest_in(base)
        update = {"warm_up": origin.warm_up if origin else {}, "probe": probe, "problems": len(problems)}
        write_manifest(folder, manifest.model_copy(update=update))
    shutil.rmtree(folder / CHECKPOINTS)
    trainer.accelerator.wait_for_everyone()


def diagnose_rewards(task: Task, config: TrainConfig, base: Path, *, cpu: bool = True) -> RewardDiagnosis:
    with quiet(), tempfile.TemporaryDirectory(prefix="speciate-") as folder:
        model, tokenizer = load_model(base)
        check_tokenizer(task, tokenizer, base)
        problems = problems_of(task, Split.TRAIN, config.problems)
        trainer = VectorTrainer(task, config, model, tokenizer, problems, Path(folder), cpu=cpu, callbacks=[])
        return RewardDiagnosis.of(trainer.sample_rewards())


def manifest_of(
    task: Task, config: TrainConfig, identity: dict[str, Any], history: Sequence[dict[str, float]]
) -> Manifest:
    answers = task.answers if config.multi_answer else 1
    return Manifest(
        task=task.name,
        method=config.method,
        codec=task.codec,
        max_tokens=task.max_tokens + 1 if task.codec is not None else -(-config.max_tokens // answers),
        answers_per_rollout=answers,
        prompt_style=config.prompt_style,
        seed=config.seed,
        steps=config.steps,
        config=identity["config"],
        base_digest=identity["base_digest"],
        data_digest=identity["data_digest"],
        versions=library_versions(),
        metrics=tuple(history),
    )


def training_curve(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    curve = []
    for entry in log:
        values = {
            _MEASURED.get(name, name.removeprefix("speciate/")): value
            for name, value in entry.items()
            if isinstance(value, int | float) and (name.startswith("speciate/") or name in _MEASURED)
        }
        if "mean" in values or "mutation_mean" in values:
            curve.append({"step": float(entry["step"]), **{n: round(float(v), 5) for n, v in values.items()}})
    return curve


def as_json(config: TrainConfig) -> dict[str, Any]:
    value: dict[str, Any] = TypeAdapter(TrainConfig).dump_python(config, mode="json")
    return value


def is_complete(identity: dict[str, Any], folder: Path, *, resume: bool) -> bool:
    """Return True if the folder holds the same run, complete; False if the run may start or resume there."""
    written, complete = identity_file(folder), (folder / MANIFEST).is_file()
    if complete or written.is_file():
        recorded = read_manifest(folder).model_dump() if complete else read_identity(written)
        # No part of the identity: a run resumes with a smaller pass, or with longer prompts than it refused.
        for name in ("micro_batch", "max_prompt_tokens"):
            recorded["config"][name] = identity["config"][name]
        # ``check_run`` does not know the digests of base and problems yet.
        known = identity.keys() & recorded.keys()
        other = [words for name, words in _NAMES.items() if name in known and recorded[name] != identity[name]]
        if other := other + _changed(recorded["config"], identity["config"]):
            raise ConflictError(f"{folder} holds a run with {' and '.join(other)}.", remedy="Choose another --out.")
        if not complete and not resume:
            raise ConflictError(f"{folder} holds an unfinished run.", remedy="Continue with --resume, or remove it.")
    elif folder.exists() and any(folder.iterdir()):
        raise ConflictError(f"{folder} is not empty.", remedy="Choose another folder with --out.")
    return complete


def _probe_prompts(trainer: VectorTrainer, folder: Path, *, begun: bool) -> list[str]:
    try:
        return trainer.probe_prompts()
    except InvalidInputError:
        if not begun:
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # the remedy may make it another run
        raise


def _changed(before: dict[str, Any], now: dict[str, Any], group: str = "") -> list[str]:
    """Return the values of a recipe that differ, such as ``steps = 12, not 13``."""
    changed = []
    for name in before | now:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            changed += _changed(old, new, f"{name}.")
        elif old != new:
            changed.append(f"{group}{name} = {old}, not {new}")
    return changed


def check_tokenizer(task: Task, tokenizer: Any, base: Path) -> None:
    """Refuse a model that cannot be prompted: it lacks a chat template, or the tokens of a tiny task."""
    if task.codec is None:
        if tokenizer.chat_template is None:
            raise InvalidInputError(
                f"the model in {base} has no chat template, and task {task.name!r} prompts with messages.",
                remedy="Use a model that was trained for chat, or add its chat_template.jinja to the folder.",
            )
    elif missing := sorted(set(GENERATED[task.name].vocabulary()) - set(tokenizer.get_vocab())):
        raise InvalidInputError(
            f"the tokenizer in {base} lacks {len(missing)} tokens of task {task.name!r}, such as {missing[0]!r}.",
            remedy="Start from a base of that task: without --base one is trained.",
        )


def _explained(error: Exception, config: TrainConfig, at_once: int, unread: Path | None) -> Exception | None:
    """Return an error with a remedy, or None; ``unread`` is a checkpoint that was not read completely."""
    # On a CPU torch raises a plain RuntimeError.
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        remedy = "One group is the least of a pass: use a smaller max_tokens, group or model, or a lora_rank."
        if at_once > config.group:
            remedy = f"Set micro_batch to a smaller multiple of {config.group}, then continue with --resume."
        return InvalidInputError(f"not enough memory for {at_once} rollouts at once: {error}", remedy=remedy)
    if unread is not None:
        return ConflictError(
            f"the checkpoint {unread} cannot be read: {error}",
            remedy="Remove its folder: --resume continues from the previous one, or starts again.",
        )
    return None


class _ProgressCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy can see
    """Callback that reports every update and stops a diverged training."""

    def __init__(self, config: TrainConfig, progress: Progress | None) -> None:
        self._config, self._progress = config, progress
        self.begun = False

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = True

    def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """Stop before diverged weights are saved."""
        if all(torch.isfinite(part).all() for part in model.parameters() if part.requires_grad):
            return
        raise InvalidInputError(
            f"the training has diverged: after update {state.global_step} of {state.max_steps} its weights hold NaN or"
            " infinity.",
            remedy="Start again in another folder with a smaller learning_rate.",
        )

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        values = training_curve([{**(logs or {}), "step": state.global_step}])
        if values and self._progress is not None and state.is_world_process_zero:
            self._progress(-(-state.global_step // self._config.updates), self._config.steps, values[0])


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' progress bars and deprecation warnings, and limit torch to one core.

    Matrices of this size gain nothing from a second core, and lose a factor of six if it is busy. A fixed order of
    summation also makes results reproducible.
    """
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield
