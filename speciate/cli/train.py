"""``speciate train``: train a policy on this machine, from scratch or from a local model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import TypeAdapter, ValidationError

from speciate.cli import output
from speciate.cli.common import command, command_group, drop_none, parse_key_values
from speciate.domain.documented import attribute_docs
from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.domain.validation import validation_message
from speciate.settings import load_settings
from speciate.training.installed import require_training

if TYPE_CHECKING:
    from speciate.training.config import TrainConfig
    from speciate.training.diagnosis import RewardDiagnosis
    from speciate.training.recipe import Progress
    from speciate.training.tasks import Task


app = command_group()

_OPTIONS: Final = ("method", "seed", "steps")
_LINE_EVERY: Final = 10
_LEAST: Final = 0.05
"""Share of readable answers, or of groups with an advantage, below which an update teaches almost nothing."""
_METRICS: Final = ("loss", "readable", "mean", "best", "diversity", "entropy")


@command(
    app,
    "train",
    "speciate train --task maze --method vpo",
    "speciate train --task programs --method vector_max_at_k --seed 1 --set group=24 --set estimator.kappa=8",
    "speciate train --task programs --method vector_max_at_k --mutator",
    "speciate train --task maze --method vpo --diagnose-rewards",
    "speciate train --task maze --method base",
    "speciate train --task python-easy --method vpo --base ./Qwen3-1.7B --set lora_rank=32 --gpu",
    "speciate train --task python-choices --method vpo --base ./smollm2-135m --warm-up --set warm_up.gate=0.9",
)
def train_command(
    task: Annotated[str, typer.Option(help="Training task: maze, … (an unknown name lists all), or module:function.")],
    method: Annotated[
        str, typer.Option(help="Estimator: grpo, vpo, vector_max_at_k, …; base trains only the base model.")
    ],
    seed: Annotated[int, typer.Option(help="Random seed.", min=0, max=2**32 - 1)] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Reinforcement learning updates.", show_default="set by the recipe", min=1)
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="Directory of the initial model.", show_default="a base trained from scratch")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Directory that the function of --task reads.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output directory.", show_default="TASK-METHOD-SEED")] = None,
    mutator: Annotated[
        bool, typer.Option("--mutator", help="Train a mutator, for the --mutator option of a run.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Recipe value, such as kl=0.01; repeatable. `help` explains all of them."
        ),
    ] = None,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose-rewards", help="Only sample the base: how much can training on reward vectors gain here?"
        ),
    ] = False,
    warmed: Annotated[
        bool, typer.Option("--warm-up", help="First teach the base the form of sets, up to a gate (supervised).")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted training run.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Train on the GPU; use `accelerate launch` for several.")] = False,
) -> None:
    """Train a policy by reinforcement learning.

    A tiny task starts from scratch: first a base model from demonstrations, then reinforcement learning. The output
    directory loads in `speciate serve` (unless it is an adapter), vLLM and transformers; it includes a manifest with
    the recipe and the training curve.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are local directories: nothing is downloaded
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported; rollout matrices are small
    if settings == ["help"]:
        from speciate.training.config import TrainConfig, WarmUpConfig
        from speciate.training.reward_batch import EstimatorConfig

        kinds = {"": TrainConfig, "estimator.": EstimatorConfig, "warm_up.": WarmUpConfig}
        rows = [(prefix + name, text) for prefix, kind in kinds.items() for name, text in attribute_docs(kind).items()]
        output.print_table(("recipe value", "meaning"), rows)
        return
    require_training()
    from speciate.policies.manifest import read_manifest
    from speciate.training.recipe import check_run, diagnose_rewards, train_policy
    from speciate.training.warm_up import warm_up

    recipe = {
        "--base": base,
        "--steps": steps,
        "--set": settings,
        "--mutator": mutator or None,
        "--diagnose-rewards": diagnose or None,
        "--warm-up": warmed or None,
    }
    _check_options(task, method, drop_none(**recipe), gpu=gpu)
    config = None
    if method != "base":
        config = build_config(method, task, seed, steps, settings, mutator=mutator, warmed=warmed)
    folder = out or Path(f"{task.replace(':', '.')}-{'mutator' if mutator else method}-{seed}")
    folder = folder if folder.name.strip(".") else folder.resolve()  # sibling directories are named after it
    complete = False
    with _open_task(task, data) as opened:
        if config is None:
            _train_base(task, seed, folder)
        else:
            if config.multi_answer and opened.answers == 1:
                output.print_note(f"warning: task {task} has one answer per rollout: {method} trains no sets.")
            if not diagnose:
                complete = check_run(opened, config, folder, resume=resume)
            start = base or _train_base(task, seed, folder.with_name(f"{task}-base-{seed}"))
            if warmed:
                start, unwarmed = folder.with_name(f"{folder.name}-warm"), start
                with _training_progress(f"{task}, warm-up") as progress:
                    warm_up(opened, config, unwarmed, start, resume=resume, cpu=not gpu, progress=progress)
            if diagnose:
                _show_diagnosis(diagnose_rewards(opened, config, start, cpu=not gpu))
                return
            with _training_progress(f"{task}, {method}") as progress:
                begin = output.print_note
                train_policy(opened, config, start, folder, resume=resume, cpu=not gpu, progress=progress, begin=begin)
            _warn(read_manifest(folder).metrics)
    output.exit_with_json(read_manifest(folder))
    done = f"{folder} holds this policy already: nothing was trained." if complete else f"Saved the policy to {folder}."
    output.print_line(done)
    after = output.command_line("serve", folder)
    if config is not None and config.lora_rank:
        flags = ("--checkpoint", folder, "--base-url", "URL", "--base", "MODEL", "--adapter", folder)
        after = f"{output.command_line('policies add', 'NAME', *flags)}  (with vLLM)"
    output.print_line(f"Next: {after}")


def _show_diagnosis(diagnosis: RewardDiagnosis) -> None:
    output.exit_with_json(asdict(diagnosis))
    for name, value in diagnosis.rows():
        output.print_line(f"{name}: {value}")
    output.print_line(diagnosis.verdict)


def _check_options(task: str, method: str, recipe: dict[str, Any], *, gpu: bool) -> None:
    import torch

    from speciate.training.tasks import SANDBOXED

    if os.environ.get("WORLD_SIZE", "1") != "1" and "--base" not in recipe:
        raise InvalidInputError("several processes would write the same base.", remedy="Pass one with --base DIR.")
    if (":" in task or task in SANDBOXED) and "--base" not in recipe:
        raise InvalidInputError(f"task {task!r} requires a language model: pass a local one with --base DIR.")
    if method == "base" and recipe:
        raise InvalidInputError(
            f"{next(iter(recipe))} does not apply to --method base, which has a fixed recipe.",
            remedy="Omit it, or choose an estimator, such as --method vector_max_at_k.",
        )
    if gpu and "LOCAL_RANK" not in os.environ:  # one process takes one GPU, and transformers would take all
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    if gpu and not torch.cuda.is_available():
        raise ConfigurationError("--gpu: torch finds no CUDA device.", remedy="Leave --gpu out to train on the CPU.")


def _train_base(task: str, seed: int, folder: Path) -> Path:
    from speciate.training.recipe import BASES, ensure_base
    from speciate.training.tasks import GENERATED

    with _training_progress(f"{task}, base", "Repeat the command: a base starts again.") as progress:
        ensure_base(GENERATED[task], replace(BASES[task], seed=seed), folder, progress)
    return folder


@contextmanager
def _open_task(task: str, data: Path | None) -> Iterator[Task]:
    """Open a task; answers of language models are scored in the sandbox of the service."""
    from evaluators.evaluator_factory import open_evaluator
    from speciate.training.tasks import SANDBOXED, open_task

    if task not in SANDBOXED and ":" not in task:
        yield open_task(task, data)
        return
    with closing(open_evaluator(load_settings().sandbox)) as evaluator:
        yield open_task(task, data, evaluator)


def build_config(
    method: str,
    task: str,
    seed: int,
    steps: int | None,
    settings: list[str] | None,
    *,
    mutator: bool = False,
    warmed: bool = False,
) -> TrainConfig:
    """Return the recipe of the task and method with the command line values applied."""
    from speciate.training.config import TrainConfig, WarmUpConfig
    from speciate.training.recipe import as_json
    from speciate.training.tasks import GENERATED

    start = TrainConfig.tiny(method, task, seed=seed) if task in GENERATED else TrainConfig.paper(method, seed=seed)
    start = replace(start, warm_up=WarmUpConfig() if warmed else None)
    values: dict[str, Any] = as_json(start.to_change() if mutator else start) | drop_none(steps=steps)
    for name, value in parse_key_values(settings, "--set").items():
        if name in _OPTIONS:
            raise InvalidInputError(f"--set {name}: {name} has its own option.", remedy=f"Write --{name} {value}.")
        _set_value(values, name, value)
    try:
        return TypeAdapter(TrainConfig).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"--set {place} = {first['input']}: {validation_message(first)}.") from None


def _set_value(values: dict[str, Any], name: str, value: object) -> None:
    *path, last = name.split(".")
    group = values
    for part in path:
        inner = group.get(part)
        group = inner if isinstance(inner, dict) else {}
    if last not in group:
        groups = {key: inner for key, inner in values.items() if isinstance(inner, dict)}
        names = [*(set(values) - set(groups)), *(f"{key}.{each}" for key, inner in groups.items() for each in inner)]
        raise InvalidInputError(
            f"--set {name}: no such recipe value.", remedy=f"Recipe values: {', '.join(sorted(names))}."
        )
    group[last] = value


def _warn(metrics: Sequence[Mapping[str, float]]) -> None:
    """Note it if almost no answer could be read, or almost no group had an advantage."""
    answered, flat = ([each[name] for each in metrics if name in each] for name in ("answered", "flat_groups"))
    if answered and (share := sum(answered) / len(answered)) < _LEAST:
        remedy = "raise max_tokens, or begin with --warm-up or a stronger base"
        output.print_note(f"warning: only {share:.1%} of the answers asked for could be read: {remedy}.")
    if flat and (share := sum(flat) / len(flat)) > 1 - _LEAST:
        output.print_note(f"warning: {share:.1%} of the groups taught nothing (flat_groups): see --diagnose-rewards.")


@contextmanager
def _training_progress(what: str, remedy: str = "Repeat the command with --resume.") -> Iterator[Progress]:
    """Yield a function that shows the metrics of a step: in a bar on a terminal, in periodic lines elsewhere."""
    console, times = output.console(stderr=True), dict[int, float]()
    with output.progress_bars(console) as progress:
        bar = progress.add_task(what, total=None, status="")

        def show(step: int, steps: int, seen: dict[str, float]) -> None:
            if not times:
                _warn([seen])
            times[step] = time.monotonic()
            status = "  ".join(f"{name} {seen[name]:.3f}" for name in _METRICS if name in seen)
            progress.update(bar, completed=step, total=steps, status=status)
            if not console.is_terminal and (len(times) == 1 or step % _LINE_EVERY == 0 or step == steps):
                first, begun = next(iter(times.items()))
                pace = ""  # the time before the first update also loads the model
                if step > first:
                    each = (times[step] - begun) / (step - first)
                    pace = f", {each:.3g} s each, about {timedelta(seconds=round(each * (steps - step)))} left"
                console.print(f"{what}: {step}/{steps}{pace}  {status}", soft_wrap=True)

        try:
            yield show
        except KeyboardInterrupt:
            where = f"after step {max(times)}" if times else "before the first step"
            output.print_note(f"{what}: interrupted {where}. {remedy}")
            raise
