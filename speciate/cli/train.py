"""``speciate train``: train a policy on this machine, from nothing or from a local model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, examples, parse_key_values
from speciate.domain.errors import ConfigurationError, InvalidInputError

if TYPE_CHECKING:
    from speciate.training.config import TrainConfig
    from speciate.training.tasks import Task

TRAIN_EXAMPLES: Final = examples(
    "speciate train --task maze --method vpo",
    "speciate train --task programs --method vector_max_at_k --seed 1 --set group=24 --set estimator.kappa=8",
    "speciate train --task programs --method vector_max_at_k --mutator",
    "speciate train --task maze --method base",
    "speciate train --task musique --data ./musique --method vpo --base ./Qwen3-1.7B --set lora_rank=32 --gpu",
)

_OPTIONS: Final = ("method", "seed")
_LINE_EVERY: Final = 10
_SHOWN: Final = ("loss", "mean", "best", "diversity", "entropy")


def train_command(
    task: Annotated[str, typer.Option(help="What to train on: maze, programs, … (an unknown name lists all).")],
    method: Annotated[str, typer.Option(help="Estimator: grpo, vpo, vector_max_at_k, …; or base for the base alone.")],
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    steps: Annotated[int | None, typer.Option(help="Updates of the reinforcement run.", min=1)] = None,
    base: Annotated[
        Path | None, typer.Option(help="Folder of the model to begin with.", show_default="one grown from nothing")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the files of a task that reads a dataset.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the result.", show_default="TASK-METHOD-SEED")] = None,
    mutator: Annotated[
        bool, typer.Option("--mutator", help="Train it to change what others propose, as the --mutator of a run.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A choice, such as kl=0.01 or estimator.kappa=8; repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Use the GPUs that there are; `accelerate launch` for several.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="The published recipe instead of that for tiny models.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a policy. A tiny task begins from nothing: first its base, by demonstrations, then the reinforcement run.

    The result is a folder that `speciate serve`, vLLM and transformers load, with a manifest that says how it was made
    and a picture of its course. A run that was stopped goes on with --resume.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are local folders: nothing is ever fetched
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy is not imported yet: the matrices of rollouts are small
    try:
        import torch  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"training needs {error.name}, which is not installed.",
            remedy="pip install 'speciate[train]' (for a machine without a GPU, first torch from its CPU index).",
        ) from None
    from speciate.training.recipe import BASES, check_run, grow_base, train_policy
    from speciate.training.tasks import DATASETS, GENERATED

    if task in DATASETS and base is None:
        raise InvalidInputError(
            f"task {task!r} is in English: there is no base to grow.", remedy="Name a local model with --base DIR."
        )
    if method == "base" and mutator:
        raise InvalidInputError("a base is no mutator.", remedy="Name an estimator: --method vector_max_at_k.")
    given = {"--base": base, "--steps": steps, "--set": settings, "--resume": resume or None, "--paper": paper or None}
    if method == "base" and (unused := [option for option, value in given.items() if value is not None]):
        raise InvalidInputError(
            f"--method base takes no {unused[0]}: a base is always grown from nothing, in one way.",
            remedy="Leave it out, or name an estimator.",
        )
    config = None if method == "base" else config_of(method, task, seed, steps, settings, paper=paper, mutator=mutator)
    folder = out or Path(f"{task}-{'mutator' if mutator else method}-{seed}")
    if folder.name in ("", ".."):
        folder = folder.resolve()  # what stands beside it takes its name
    with _opened(task, data) as opened:
        if config is not None:
            check_run(opened, config, folder, resume=resume)
        if base is None:
            base = folder if config is None else folder.with_name(f"{task}-base-{seed}")
            with _Shown(f"{task}, base") as shown:
                from dataclasses import replace

                grow_base(GENERATED[task], replace(BASES[task], seed=seed), base, shown.step)
        if config is not None:
            with _Shown(f"{task}, {method}") as shown:
                train_policy(opened, config, base, folder, resume=resume, cpu=not gpu, progress=shown.step)
    if as_json:
        from speciate.policies.manifest import read_manifest

        output.print_json(read_manifest(folder))
        return
    output.print_line(f"The policy is in {folder}.")
    output.print_line(f"Next: speciate serve {folder}")


@contextmanager
def _opened(task: str, data: Path | None) -> Iterator[Task]:
    """Open a task; answers to a dataset's problems are scored in the service's own sandbox."""
    from evaluators.choose import open_broker
    from speciate.settings import load_settings
    from speciate.training.tasks import DATASETS, open_task

    if task not in DATASETS or data is None:
        yield open_task(task, data)
        return
    with closing(open_broker(load_settings().sandbox)) as broker:
        yield open_task(task, data, broker)


def config_of(
    method: str,
    task: str,
    seed: int,
    steps: int | None,
    settings: list[str] | None,
    *,
    paper: bool = False,
    mutator: bool = False,
) -> TrainConfig:
    """Return the choices of a run: a whole recipe, changed by what was given on the command line.

    Raises:
        InvalidInputError: A choice does not exist or has a value that it cannot have.
    """
    from pydantic import TypeAdapter, ValidationError

    from speciate.domain.validation import validation_message
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import as_json
    from speciate.training.tasks import GENERATED

    start = (
        TrainConfig.paper(method, seed=seed)
        if paper or task not in GENERATED
        else TrainConfig.tiny(method, task, seed=seed)
    )
    values: dict[str, Any] = as_json(start.to_change() if mutator else start)
    if steps is not None:
        values["steps"] = steps
    for name, value in parse_key_values(settings, "--set").items():
        if name in _OPTIONS:  # folders are called by them
            raise InvalidInputError(f"--set {name}: that is an option of its own.", remedy=f"Write --{name} {value}.")
        *path, last = name.split(".")
        place = values
        for part in path:
            inner = place.get(part)
            place = inner if isinstance(inner, dict) else {}
        if last not in place:
            groups = {k: inner for k, inner in values.items() if isinstance(inner, dict)}
            known = [*(set(values) - set(groups)), *(f"{k}.{n}" for k, inner in groups.items() for n in inner)]
            raise InvalidInputError(
                f"--set {name}: there is no such choice.", remedy=f"Choices: {', '.join(sorted(known))}."
            )
        place[last] = value
    try:
        return TypeAdapter(TrainConfig).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInputError(f"--set {'.'.join(map(str, first['loc']))}: {validation_message(first)}.") from None


class _Shown:
    """Progress of a training run: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, what: str) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = output.console(stderr=True)
        self._what, self._started = what, time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._bar = self._progress.add_task(what, total=None, now="")

    def __enter__(self) -> _Shown:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, step: int, steps: int, seen: dict[str, float]) -> None:
        """Show an update."""
        now = "  ".join(f"{name} {seen[name]:.3f}" for name in _SHOWN if name in seen)
        self._progress.update(self._bar, completed=step, total=steps, now=now)
        if not self._console.is_terminal and (step % _LINE_EVERY == 0 or step == steps):
            seconds = time.monotonic() - self._started
            self._console.print(f"{self._what}: {step}/{steps}, {seconds:.0f} s  {now}", soft_wrap=True)
