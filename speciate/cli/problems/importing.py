"""``speciate problems import``: add the problems of a task as a set, or convert another system's directory."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, client, examples
from speciate.compat import FORMATS, USUAL, Choice, read_directory
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.limits import Limits
from speciate.domain.numbers import short_number
from speciate.domain.values import SLUG

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.compat.draft import Draft
    from speciate.domain.candidate import Evaluation, Failure
    from speciate.domain.objective import Objective
    from speciate.schema.problems import ProblemSet

IMPORT_EXAMPLES: Final = examples(
    "speciate problems import task:maze --split test --count 200",
    "speciate problems import task:musique --data ./musique --split test --count 50 --into musique-dev",
    "speciate problems import openevolve:./circle_packing",
    "speciate problems import shinka:./tours --reward length:min --reward spread:max --into ./my-tours",
    "speciate problems import skydiscover:./ADRS/eplb --wall-s 7200 --limit cores=4 --limit memory_bytes=8e9",
    "speciate problems import harbor:./hello-world --image localhost/hello@sha256:…",
)

_SOURCES: Final = ("task:NAME", *(f"{name}:DIR" for name in FORMATS))


def import_command(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="|".join(_SOURCES), help="A task, or a directory in the format of another system.")
    ],
    split: Annotated[str, typer.Option(help="train or test; the two are disjoint.")] = "test",
    count: Annotated[int, typer.Option(help="Number of problems.", min=1, max=10_000)] = 100,
    start: Annotated[int, typer.Option(help="Index of the first problem.", min=0)] = 0,
    data: Annotated[Path | None, typer.Option(help="Directory with the dataset files of the task.")] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric of the directory's evaluator with its direction, name:max or name:min; repeatable.",
            show_default="combined_score:max",
        ),
    ] = None,
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
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="Limit of one evaluation as in problem.toml, such as cores=4; repeatable.",
            show_default="the defaults of problem.toml",
        ),
    ] = None,
    requirement: Annotated[
        list[str] | None,
        typer.Option(help="Package of the evaluator or of programs, beside those found; repeatable."),
    ] = None,
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
    as_json: AsJson = False,
) -> None:
    """Add the problems of a task as a set, or convert another system's directory.

    Importing a task again returns the same set. A directory is converted to a local problem directory for review and
    editing; nothing is submitted.
    """
    kind, _, name = source.partition(":")
    if kind not in ("task", *FORMATS) or not name:
        raise InvalidInputError(f"cannot import {source!r}.", remedy=f"Expected one of {', '.join(_SOURCES)}.")
    if kind in FORMATS:
        choice = Choice(program, evaluator, tuple(include or ()))
        draft = read_draft(kind, Path(name), choice, slug=slug, wall_s=wall_s, memory_mb=memory_mb, limits=limits or ())
        if requirement:
            draft = replace(draft, packages=replace(draft.packages, demanded=tuple(requirement)))
        draft, anyway = _in_image(draft, Path(name), image, anyway=anyway)
        imported = convert(draft, reward or [], None if into is None else Path(into), anyway=anyway)
        if as_json:
            output.print_json(imported.as_json())
        else:
            imported.show()
        return
    if reward or slug or wall_s or memory_mb or limits or requirement or image or program or evaluator or include:
        raise InvalidInputError(
            "a task defines its own rewards, slugs, limits, packages and files.",
            remedy="Omit --reward, --slug, --wall-s, --memory-mb, --limit, --requirement, --image, --program,"
            " --evaluator and --include.",
        )
    with client(ctx) as service:
        created = import_task(service, name, split, count, start=start, data=data, into=into)
    if as_json:
        output.print_json(created)
    else:
        many = output.pluralize(len(created.problems), "problem")
        output.print_line(f"{created.slug}: {many}, {created.problems[0].slug} to {created.problems[-1].slug}")


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
    """Submit problems of a task and return them as a problem set.

    Raises:
        InvalidInputError: There is no such task or split.
        ConflictError: A set of that name holds other problems.
    """
    from rich.progress import track

    from speciate.training.tasks import Split, open_task

    if split not in tuple(Split):
        raise InvalidInputError(f"there is no split {split!r}.", remedy=f"Splits: {', '.join(Split)}.")
    problems = open_task(name, data).problems(Split(split), count, start=start)
    slug = into or f"{name}-{split}-{start}-{start + count - 1}"
    console = output.console(stderr=True)
    steps = track(problems, f"Submitting {slug}", total=count, console=console, disable=not console.is_terminal)
    added = [str(service.problems.add(problem).id) for problem in steps]
    try:
        problem_set = service.problem_sets.get(slug)
    except NotFoundError:
        return service.problem_sets.create(
            slug, added, title=f"{output.pluralize(count, 'problem')} of task {name}, {split}"
        )
    if [str(problem.id) for problem in problem_set.problems] != added:
        raise ConflictError(f"the set {slug!r} holds other problems.", remedy="Choose another name with --into.")
    return problem_set


@dataclass(frozen=True, slots=True)
class ConvertedProblem:
    """A problem converted from another system's directory."""

    draft: Draft
    """The parsed directory."""
    files: Sequence[Path]
    """The files written."""
    objectives: Sequence[Objective]
    """Its objectives."""
    seed: Mapping[str, float]
    """Rewards of the initial program by name."""
    texts: Mapping[str, str]
    """Artifacts of evaluating the initial program, by label."""

    def as_json(self) -> dict[str, Any]:
        return {
            "problem": self.draft.slug,
            "files": [str(path) for path in self.files],
            "rewards": dict(self.seed),
            "artifacts": dict(self.texts),
            "left_out": dict(self.draft.left_out),
            "remarks": list(self.draft.remarks),
        }

    def show(self) -> None:
        rows = [(o.name, short_number(self.seed[o.name]), o.aim, o.role.value) for o in self.objectives]
        output.print_table(("reward", ">initial program", "direction", "role"), rows, empty="no rewards")
        for label, text in self.texts.items():
            output.print_line(f"--- {label}")
            output.print_text(text)
        output.print_line()
        for path in self.files:
            output.print_line(path)
        for name, why in self.draft.left_out.items():
            output.print_line(f"omitted: {name} {why}")
        for remark in self.draft.remarks:
            output.print_line(f"note: {remark}")
        folder = self.files[0].parent
        output.print_line(f"Next: review {self.files[0]}, then run: speciate problems add {folder}")


def read_draft(
    kind: str,
    folder: Path,
    choice: Choice = USUAL,
    *,
    slug: str | None = None,
    wall_s: float | None = None,
    memory_mb: int | None = None,
    limits: Sequence[str] = (),
) -> Draft:
    """Read another system's directory without running anything.

    Raises:
        NotFoundError: The directory or a required file does not exist.
        InvalidInputError: The directory cannot be converted, or the slug is invalid.
    """
    if slug is not None and (len(slug) > _MAX_SLUG or not re.fullmatch(SLUG, slug)):
        raise InvalidInputError(
            f"invalid slug {slug!r}.",
            remedy=f"Pass --slug with lower-case words joined by hyphens, at most {_MAX_SLUG} characters.",
        )
    draft = read_directory(kind, folder, choice)
    if slug is not None:
        draft = replace(draft, slug=slug, title=slug.replace("-", " ").capitalize())
    return replace(
        draft,
        wall_s=draft.wall_s if wall_s is None else wall_s,
        memory_bytes=draft.memory_bytes if memory_mb is None else memory_mb << 20,
        limits=_limits_in(limits),
    )


def _in_image(draft: Draft, folder: Path, image: str | None, *, anyway: bool) -> tuple[Draft, bool]:
    """Return a Harbor task with its image, and True because its empty script may score 0; other drafts unchanged.

    Raises:
        InvalidInputError: The image has no digest, the draft no image, or its own solution scores nothing.
    """
    from speciate.cli.problems.check import evaluate_seed
    from speciate.compat.harbor import SEED, HarborDraft, require_image
    from speciate.compat.rewards import measured_in

    if not isinstance(draft, HarborDraft):
        if image is not None:
            raise InvalidInputError("--image is for tasks of Harbor.", remedy="Omit it, or import harbor:DIR.")
        return draft, anyway
    draft = draft if image is None else replace(draft, image=image)
    require_image(draft, folder)
    if draft.reference and not anyway:
        (evaluation,) = evaluate_seed(draft.trial().model_copy(update={"seed_program": draft.reference}), seeds=[0])
        if not any(value > 0 for value in measured_in(evaluation.artifacts).values()):
            _require_success(draft, evaluation)
            texts = "".join(f"--- {label}\n{text}\n" for label, text in evaluation.artifacts.items())
            raise InvalidInputError(
                f"the task's own {SEED} gets no positive reward:\n{output.sanitize(texts)}\n",
                remedy="Install what the test downloads in the image: containers have no network. If it is right, pass"
                " --anyway.",
            )
    return draft, True


def _limits_in(given: Sequence[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if name not in Limits.model_fields or not math.isfinite(number):
            names = ", ".join(Limits.model_fields)
            raise InvalidInputError(f"--limit is {text!r}.", remedy=f"Pass NAME=NUMBER with one of {names}.")
        limits[name] = int(number) if number.is_integer() else number
    return limits


def convert(draft: Draft, rewards: Sequence[str], into: Path | None, *, anyway: bool = False) -> ConvertedProblem:
    """Convert another system's directory to a problem directory.

    The initial program is scored in the sandbox to determine the available metrics: three times, or once if that takes
    longer than a minute.

    Raises:
        InvalidInputError: The directory cannot be converted, the initial program fails in a trial, or a reward has no
            direction.
        ConflictError: The output directory exists.
    """
    from speciate.cli.problems.check import evaluate_seed
    from speciate.compat.draft import mean_weights, write
    from speciate.compat.rewards import after_trial, measured_in, noise_of, rewards_of
    from speciate.problems.markers import stray_marker_note
    from speciate.runs.silent_failure import METRIC_LISTS

    trial = draft.trial()
    if not trial.seed_program.strip():
        raise InvalidInputError(f"{draft.seed} is empty: nothing to score.")
    (evaluation,) = evaluate_seed(trial, seeds=[0])
    if _writes_beside(evaluation):
        remark = "the evaluator writes into its own folder: each evaluation has a copy of it, in tier A"
        options = {**draft.options, "writes_beside": True}
        copying = replace(draft, options=options, remarks=(*draft.remarks, remark))
        (again,) = evaluate_seed(copying.trial(), seeds=[0])
        if not _writes_beside(again):
            draft, trial, evaluation = copying, copying.trial(), again
    _require_success(draft, evaluation)
    seed = measured_in(evaluation.artifacts)
    if not anyway:
        _require_scores(draft, seed, evaluation)
    # A metric may be missing from one evaluation, and two evaluations may differ.
    further = evaluate_seed(trial, seeds=[1, 2]) if evaluation.wall_s <= _LONG_TRIAL_S else []
    for again in further:
        _require_success(draft, again)
    measured = [seed, *(values for again in further if (values := measured_in(again.artifacts)))]
    seed = {name: value for values in reversed(measured) for name, value in values.items()}
    noise = noise_of(measured)
    draft = after_trial(draft, evaluation.artifacts)
    sentinel = _SENTINEL if {*seed.values()} == {-1.0} else ""
    notes = filter(None, (stray_marker_note(trial.seed_program), sentinel))
    draft = replace(draft, remarks=(*draft.remarks, *notes))
    objectives = rewards_of(draft, rewards, seed)
    if maximized := [name for name in mean_weights(objectives) if not rewards]:
        remark = (
            f"no metric has a declared direction: runs maximize the mean of {', '.join(maximized)}, as OpenEvolve does."
            " If one of them is a loss, import again with --reward NAME:min or NAME:max for each objective"
        )
        draft = replace(draft, remarks=(*draft.remarks, remark))
    files = write(draft.written(objectives, seed, noise), into or Path(f"{draft.slug}-problem"))
    texts = {label: text for label, text in evaluation.artifacts.items() if label not in METRIC_LISTS}
    return ConvertedProblem(draft, files, objectives, seed, texts)


_LIMITS: Final = {
    "wall_limit": "Raise the limit with --wall-s.",
    "cpu_limit": "Raise the limit with --wall-s, or with --limit cores=N if the program computes with several cores.",
    "memory_limit": "Raise the limit with --memory-mb.",
}
"""Remedies of exceeded limits, by reason of the failure."""
_SENTINEL: Final = "every score is -1, which some evaluators give instead of an error: let yours raise it, to be sure"
_NOT_WRITABLE: Final = re.compile(r"Read-only file system: '(?:/tmp/data/|[^/'\n])")
"""An error in the folder of the evaluator, which is its working folder, too."""
_LONG_TRIAL_S: Final = 60.0
_MAX_SLUG: Final = 80


def _writes_beside(evaluation: Evaluation) -> bool:
    """Return True if the evaluation reports that it cannot write into the folder of the evaluator."""
    detail = () if evaluation.failure is None else (evaluation.failure.detail,)
    return any(_NOT_WRITABLE.search(text) for text in (*detail, *evaluation.artifacts.values()))


def _require_success(draft: Draft, evaluation: Evaluation) -> None:
    if evaluation.failure is not None:
        raise InvalidInputError(
            _failure_message(draft, evaluation.failure, evaluation), remedy=_remedy(draft, evaluation)
        )


def _require_scores(draft: Draft, seed: Mapping[str, float], evaluation: Evaluation) -> None:
    """Reject an initial program that scores 0 everywhere, or nothing positive while the evaluator states a failure.

    That is an exception, a field for errors, or a program that is not correct. Words in a log are none, and a negative
    score is usual for a loss. Only ``combined_score`` counts, if there is one: evaluators report a huge loss beside an
    error.

    Raises:
        InvalidInputError: There is none; the message shows what the evaluation reports.
    """
    from speciate.runs.silent_failure import FALLBACK_ADVICE, METRIC_LISTS, stated_failure

    rated = [seed["combined_score"]] if "combined_score" in seed else seed.values()
    if any(value > 0 for value in rated):
        return
    texts = {label: text for label, text in evaluation.artifacts.items() if label not in METRIC_LISTS}
    error = stated_failure(texts, evaluation.tier)
    if error is None and any(seed.values()) and seed.get("correct") != 0:
        return
    scores = ", ".join(f"{name} = {short_number(value)}" for name, value in seed.items()) or "no number"
    context = "".join(f"--- {label}\n{text.strip()}\n" for label, text in texts.items())
    if error is not None and error.certain:
        context = f"{error.line}\n"
    specific = error is not None and error.remedy != FALLBACK_ADVICE and not _left_out(draft, texts)
    remedy = error.remedy if error is not None and specific else _remedy(draft, evaluation)
    raise InvalidInputError(
        f"the evaluator gives {draft.seed} no positive score ({scores})"
        + (f" and reports:\n{output.sanitize(context)}" if context else "."),
        remedy=f"{remedy} If these scores are right, pass --anyway.",
    )


def _failure_message(draft: Draft, failure: Failure, evaluation: Evaluation) -> str:
    texts = evaluation.artifacts
    details = "\n".join([failure.detail, *(f"--- {label}\n{text}" for label, text in texts.items())]).strip()
    return f"{draft.seed} cannot be scored: {failure.kind.value} ({failure.reason})\n{output.sanitize(details)}\n"


def _left_out(draft: Draft, texts: Mapping[str, str]) -> str:
    """Return why files that the texts of a failed evaluation name were left out, and how to include them."""
    from speciate.compat.folder import INCLUDABLE

    report = "\n".join(texts.values())
    sentences = []
    for path, reason in draft.left_out.items():
        name = path.rpartition("/")[2]
        module = re.escape(name.removesuffix(".py"))
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])|No module named '?(?:\w+\.)*{module}\b", report):
            remedy = f" Take it with --include {path}." if reason in INCLUDABLE else ""
            sentences.append(f"{path} was left out: it {reason}.{remedy}")
    return " ".join(sentences)


def _remedy(draft: Draft, evaluation: Evaluation) -> str:
    from speciate.compat.naming import UNPROMPTED
    from speciate.runs.silent_failure import reported_error

    notes = "".join(f"{remark}. " for remark in draft.remarks if remark != UNPROMPTED)
    if evaluation.failure is not None and evaluation.failure.reason in _LIMITS:
        return f"{_LIMITS[evaluation.failure.reason]} {notes}".strip()
    texts = dict(evaluation.artifacts)
    if evaluation.failure is not None:
        texts = {"detail": evaluation.failure.detail, **texts}
    if missing := _left_out(draft, texts):
        return missing
    error = reported_error(texts, evaluation.tier)
    if error is not None:
        return error.remedy
    return f"{notes}Evaluators run in the sandbox: no network, only the packages of this Python environment."
