"""Score an initial program to find its metrics, or say why it has none and what to do."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from speciate.compat.draft import Draft
from speciate.compat.folder import ADAPTER, INCLUDABLE
from speciate.compat.naming import UNPROMPTED
from speciate.compat.rewards import after_trial, measured_in, noise_of
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import InvalidInputError
from speciate.domain.numbers import short_number
from speciate.domain.problem import Problem
from speciate.problems.definition import stray_marker_note
from speciate.prompts.evolve_blocks import find_blocks
from speciate.runs.silent_failure import FALLBACK_ADVICE, FUNCTION_ADVICE, METRIC_LISTS, reported_error, stated_failure

Score = Callable[[Problem, Sequence[int]], Sequence[Evaluation]]
"""Function that evaluates the seed program of a problem, once with each seed."""


def measure(
    draft: Draft, score: Score, *, anyway: bool
) -> tuple[Draft, Mapping[str, float], Mapping[str, float], Mapping[str, str]]:
    """Score the initial program three times, twice or once: a fast one more often.

    Returns the directory with what that has shown, the metrics by name (means of those that differ), the standard
    deviation of each that differs between evaluations, and the artifacts of the first one by label. ``anyway`` accepts
    a program without a positive score.
    """
    trial = draft.trial()
    if not trial.seed_program.strip():
        raise InvalidInputError(f"{draft.seed} is empty: nothing to score.")
    (evaluation,) = score(trial, [0])
    if _writes_beside(evaluation):
        remark = "the evaluator writes into its own folder: each evaluation has a copy of it, in tier A"
        copying = replace(draft, options={**draft.options, "writes_beside": True}, remarks=(*draft.remarks, remark))
        (again,) = score(copying.trial(), [0])
        if not _writes_beside(again):
            draft, trial, evaluation = copying, copying.trial(), again
    require_success(draft, evaluation)
    seed = measured_in(evaluation.artifacts)
    if not anyway:
        _require_scores(draft, seed, evaluation)
    # A metric may be missing from one evaluation, and two evaluations may differ.
    repeats = sum(evaluation.wall_s <= limit_s for limit_s in _REPEATED_WITHIN_S)
    further = score(trial, range(1, 1 + repeats)) if repeats else []
    for again in further:
        require_success(draft, again)
    metrics = [seed, *(values for again in further if (values := measured_in(again.artifacts)))]
    noise = noise_of(metrics)
    seed = {name: value for values in reversed(metrics) for name, value in values.items()}
    seed |= {name: fmean(values[name] for values in metrics if name in values) for name in noise}
    draft = after_trial(draft, evaluation.artifacts)
    notes = [*draft.remarks]
    if stray := stray_marker_note(trial.seed_program):
        notes.append(stray)
    elif not find_blocks(trial.seed_program):
        notes.append(f"{draft.seed} has no EVOLVE-BLOCK markers: the whole program may change")
    if not repeats:
        notes.append(f"one evaluation takes {evaluation.wall_s:.0f} s, so whether evaluations differ was not tried")
    if {*seed.values()} == {-1.0}:
        notes.append(_SENTINEL)
    return replace(draft, remarks=tuple(notes)), seed, noise, dict(evaluation.artifacts)


_REPEATED_WITHIN_S: Final = (1.0, 30.0)
"""Longest evaluations of which there is another one."""
NUMBER_ADVICE: Final = "Let the evaluator return a number, or raise an exception if the program fails."
_FRAME: Final = re.compile(r'(?m)^ *File "[^"\n]*/data/(?P<name>[^"\n]+)", line (?P<line>\d+)')
_LIMITS: Final = {
    "wall_limit": "Raise the limit with --wall-s.",
    "cpu_limit": "Raise the limit with --wall-s, or with --limit cores=N if the program computes with several cores.",
    "memory_limit": "Raise the limit with --memory-mb.",
}
_SENTINEL: Final = "every score is -1, which some evaluators give instead of an error: let yours raise it, to be sure"
_NOT_DEFINED: Final = re.compile(
    r"module '[\w.]+' has no attribute '(\w+)'|defines no function '(\w+)'|cannot import name '(\w+)'|KeyError: '(\w+)'"
)
_NOT_WRITABLE: Final = re.compile(r"Read-only file system: '(?:/tmp/data/|[^/'\n])")
"""An error in the folder of the evaluator, which is its working folder, too."""


def _writes_beside(evaluation: Evaluation) -> bool:
    """Return True if the evaluation reports that it cannot write into the folder of the evaluator."""
    detail = () if evaluation.failure is None else (evaluation.failure.detail,)
    return any(_NOT_WRITABLE.search(text) for text in (*detail, *evaluation.artifacts.values()))


def require_success(draft: Draft, evaluation: Evaluation) -> None:
    """Raise ``InvalidInputError`` if the program has no score: first the cause with its place, then where it arose."""
    if (failure := evaluation.failure) is None:
        return
    evaluator = draft.options.get("evaluator", draft.seed)
    trace, _, cause = failure.detail.strip().rpartition("\n")
    theirs = [
        each for each in _FRAME.finditer(trace) if each["name"] != ADAPTER and "site-packages" not in each["name"]
    ]
    if theirs:
        name = theirs[-1]["name"]
        lines = [f"{name if name in draft.files else draft.seed}, line {theirs[-1]['line']}: {cause}"]
        lines += [trace[theirs[0].start() :]] if len(theirs) > 1 else []
    elif failure.reason == "evaluator_raised":
        lines = [f"{evaluator}: {cause}"]
    else:
        lines = [f"{draft.seed} cannot be scored: {failure.kind.value} ({failure.reason})", failure.detail]
    lines += [f"--- {label}\n{text}" for label, text in evaluation.artifacts.items()]
    raise InvalidInputError("\n".join(lines).strip() + "\n", remedy=_remedy(draft, evaluation))


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
    if not seed:
        values = "".join(f", {label} is {text.strip()[:200]}" for label, text in texts.items())
        raise InvalidInputError(f"the evaluator gives {draft.seed} no finite number{values}.", remedy=NUMBER_ADVICE)
    error = stated_failure(texts, evaluation.tier)
    if error is None and any(seed.values()) and seed.get("correct") != 0:
        return
    scores = ", ".join(f"{name} = {short_number(value)}" for name, value in seed.items())
    context = "".join(f"--- {label}\n{text.strip()}\n" for label, text in texts.items())
    if error is not None and error.certain:
        context = f"{error.line}\n"
    specific = error is not None and error.remedy != FALLBACK_ADVICE and not _left_out(draft, texts)
    remedy = error.remedy if error is not None and specific else _remedy(draft, evaluation)
    raise InvalidInputError(
        f"the evaluator gives {draft.seed} no positive score ({scores})"
        + (f" and reports:\n{context}" if context else "."),
        remedy=f"{remedy} If these scores are right, pass --anyway.",
    )


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


def _undefined(draft: Draft, report: str) -> str | None:
    """Return the name that a failed evaluation misses in the initial program."""
    used, defined = draft.files.get(draft.options.get("evaluator", ""), ""), draft.files.get(draft.seed, "")
    names = [name for groups in _NOT_DEFINED.findall(report) for name in groups if name]
    return next((n for n in names if re.search(rf"\b{n}\b", used) and not re.search(rf"\b{n}\b", defined)), None)


def _remedy(draft: Draft, evaluation: Evaluation) -> str:
    notes = "".join(f"{remark}. " for remark in draft.remarks if remark != UNPROMPTED)
    if evaluation.failure is not None and evaluation.failure.reason in _LIMITS:
        return f"{_LIMITS[evaluation.failure.reason]} {notes}".strip()
    texts = dict(evaluation.artifacts)
    if evaluation.failure is not None:
        texts = {"detail": evaluation.failure.detail, **texts}
    if missing := _left_out(draft, texts):
        return missing
    report = "\n".join(texts.values())
    if re.search(r'File "<frozen os>"|environment variable', report):
        return f"The sandbox passes no environment variables and has no network. {FUNCTION_ADVICE}"
    if re.search(r"MemoryError\b", report):
        return _LIMITS["memory_limit"]
    if undefined := _undefined(draft, report):
        return f"{draft.options['evaluator']} uses {undefined}, which {draft.seed} does not define."
    if re.search("returned NoneType|measured no number", texts.get("detail", "")):
        return "Let the evaluator return its numbers: texts and what it prints are no score."
    if module := re.search(r"No module named '?([\w.]+)", report):
        listed = "requirements.txt beside the evaluator, or as --requirement"
        return f"Name the package of {module[1]} in {listed}, or install it in this Python environment."
    error = reported_error(texts, evaluation.tier)
    if error is not None:
        return error.remedy
    return f"{notes}Evaluators run in the sandbox: no network, only the packages of this Python environment."
