"""Convert a directory of another system to a problem: score its initial program, then write the problem's files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from speciate.cli import output
from speciate.cli.problems.check import evaluate_seed
from speciate.compat import USUAL, Choice, read_directory
from speciate.compat.draft import Draft, mean_weights, write
from speciate.compat.folder import INCLUDABLE
from speciate.compat.harbor import SEED, HarborDraft, require_image
from speciate.compat.naming import UNPROMPTED
from speciate.compat.rewards import after_trial, measured_in, noise_of, rewards_of
from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.errors import InvalidInputError
from speciate.domain.limits import Limits
from speciate.domain.numbers import short_number
from speciate.domain.objective import Objective
from speciate.domain.values import SLUG
from speciate.problems.definition import stray_marker_note
from speciate.runs.silent_failure import FALLBACK_ADVICE, METRIC_LISTS, reported_error, stated_failure


@dataclass(frozen=True, slots=True)
class ConvertedProblem:
    """A problem converted from another system's directory."""

    draft: Draft
    files: Sequence[Path]
    objectives: Sequence[Objective]
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
    """Read another system's directory without running anything."""
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


def in_image(draft: Draft, folder: Path, image: str | None, *, anyway: bool) -> tuple[Draft, bool]:
    """Return a Harbor task with its image, and True because its empty script may score 0; other drafts unchanged."""
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


def _limits_in(options: Sequence[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in options:
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
    """
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
    """
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
