"""``speciate problems import``: add the problems of a task as a set, or convert another system's directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import client
from speciate.cli.problems.sets import get_or_create
from speciate.compat import FORMATS, Choice, read_directory
from speciate.domain.errors import ConflictError, InvalidInputError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.problems import ProblemSet

IMPORT_EXAMPLES: Final = (
    "speciate problems import task:maze --split test --count 200",
    "speciate problems import openevolve:./circle_packing",
    'speciate problems import shinka:./tours --minimize length --target "length <= 9" --into ./my-tours',
    "speciate problems import skydiscover:./ADRS/eplb --wall-s 7200 --limit cores=4 --limit memory_bytes=8e9",
    "speciate problems import harbor:./hello-world --image localhost/hello@sha256:…",
)

Maximize = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Number of the evaluator that search maximizes; repeatable.", show_default="combined_score"
    ),
]
Minimize = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Number of the evaluator that search minimizes; repeatable.")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help='Goal such as "loss <= 0.1"; of several, all must hold.',
        show_default="better than the initial program",
    ),
]

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Limit of one evaluation as in problem.toml, such as cores=4; repeatable.",
        show_default="the defaults of problem.toml",
    ),
]
Requirements = Annotated[
    list[str] | None,
    typer.Option("--requirement", help="Package of the evaluator or of programs, beside those found; repeatable."),
]

_SOURCES: Final = ("task:NAME", *(f"{name}:DIR" for name in FORMATS))


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="|".join(_SOURCES), help="A task, or a directory in the format of another system.")
    ],
    split: Annotated[str, typer.Option(help="train or test; the two are disjoint.")] = "test",
    count: Annotated[int, typer.Option(help="Number of problems.", min=1, max=10_000)] = 100,
    start: Annotated[int, typer.Option(help="Index of the first problem.", min=0)] = 0,
    data: Annotated[Path | None, typer.Option(help="Directory that the function of a task reads.")] = None,
    maximize: Maximize = None,
    minimize: Minimize = None,
    target: Targets = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="Name of the problem set of a task; output directory of a converted problem.",
            show_default="TASK-SPLIT-START-END; NAME-problem",
        ),
    ] = None,
    slug: Annotated[
        str | None, typer.Option(help="Slug of a converted problem.", show_default="name of the directory")
    ] = None,
    wall_s: Annotated[
        float | None,
        typer.Option(
            help="Wall limit of one evaluation in seconds.",
            min=0.01,
            max=86_400,
            show_default="the other system's, else 300",
        ),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(
            help="Memory limit of one evaluation in MiB.",
            min=64,
            max=64 << 10,
            show_default="the other system's, else 2048",
        ),
    ] = None,
    limits: Limits = None,
    requirement: Requirements = None,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Initial program in the directory.",
            show_default="the other system's name, such as initial_program.py",
        ),
    ] = None,
    evaluator: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Evaluator in the directory.",
            show_default="the other system's name, such as evaluator.py",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="File, folder or glob to take although the import leaves it out, such as params.yaml; repeatable.",
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image of a Harbor task, with its digest.", show_default="docker_image")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Accept an initial program without any positive score.")
    ] = False,
) -> None:
    """Add the problems of a task as a set, or convert another system's directory.

    Importing a task again returns the same set. A directory is converted to a local problem directory for review and
    editing; nothing is submitted.
    """
    kind, _, name = source.partition(":")
    if kind not in ("task", *FORMATS) or not name:
        raise InvalidInputError(f"cannot import {source!r}.", remedy=f"Expected one of {', '.join(_SOURCES)}.")
    if kind in FORMATS:
        if data or (split, count, start) != ("test", 100, 0):
            raise InvalidInputError("--data, --split, --count and --start are for a task.", remedy="Omit them.")
        from speciate.cli.problems.check import evaluate_seed
        from speciate.cli.problems.conversion import in_image, print_converted
        from speciate.compat.conversion import adjusted, convert
        from speciate.problems.writing import write

        draft = read_directory(kind, Path(name), Choice(program, evaluator, include=tuple(include or ())))
        more = {"limits": limits or (), "requirements": requirement or ()}
        draft = adjusted(draft, slug=slug, wall_s=wall_s, memory_mb=memory_mb, **more)
        folder, remedy = Path(into or f"{draft.slug}-problem"), "Name a new directory with --into."
        write({}, folder, remedy=remedy)  # the score may take minutes
        draft, anyway = in_image(draft, Path(name), image, anyway=anyway)
        rewards: dict[str, Any] = {"maximize": maximize or (), "minimize": minimize or (), "targets": target or ()}
        converted = convert(draft, evaluate_seed, **rewards, anyway=anyway)
        print_converted(converted, write(converted.files, folder, remedy=remedy))
        return
    options = (maximize, minimize, target, slug, wall_s, memory_mb, limits, requirement, image, program, evaluator)
    if any((*options, include, anyway)):
        raise InvalidInputError(
            "a task defines its own rewards, targets, slugs, limits, packages and files.",
            remedy="Omit --maximize, --minimize, --target, --slug, --wall-s, --memory-mb, --limit, --requirement,"
            " --image, --program, --evaluator, --include and --anyway.",
        )
    created = import_task(client(), name, split, count, start=start, data=data, into=into)
    many = output.pluralize(len(created.problems), "problem")
    output.print_result(created, f"{created.slug}: {many}, {created.problems[0].slug} to {created.problems[-1].slug}")


def import_task(
    service: Client,
    name: str,
    split: str,
    count: int,
    *,
    start: int = 0,
    data: Path | None = None,
    into: str | None = None,
) -> ProblemSet:
    """Submit problems of a task and return them as a problem set."""
    from rich.progress import track

    from speciate.training.tasks import Split, open_task, problems_of

    if split not in tuple(Split):
        raise InvalidInputError(f"there is no split {split!r}.", remedy=f"Splits: {', '.join(Split)}.")
    task = open_task(name, data)
    problems = problems_of(task, Split(split), count, start=start)
    slug = into or f"{task.name}-{split}-{start}-{start + len(problems) - 1}"
    console = output.console(stderr=True)
    steps = track(problems, f"Submitting {slug}", total=len(problems), console=console, disable=not console.is_terminal)
    added = [str(service.problems.add(problem).id) for problem in steps]
    title = f"{output.pluralize(len(problems), 'problem')} of task {task.name}, {split}"
    other = ConflictError(f"the set {slug!r} holds other problems.", remedy="Choose another name with --into.")
    return get_or_create(service, slug, added, title=title, other=other)
