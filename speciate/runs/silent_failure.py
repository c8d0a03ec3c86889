"""Recognise an evaluation that gave rewards although it failed: evaluators catch their own exceptions and answer 0."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from speciate.domain.candidate import UNMEASURED, Evaluation, Failure, FailureKind
from speciate.domain.numbers import short_number
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem, ProblemKind

_ERROR_LINE: Final = re.compile(
    # A name such as ValueError; "MeanError: 0.3" is a measurement.
    r"(?m)^.{0,400}?(?:\b[A-Za-z_.]{1,80}(?:Error|Exception)\b ?[:(](?! ?[-+]?(?:\.?\d|nan|inf)).{0,1000}"
    r"|\[Errno \d+\].{0,400}|\bNo module named\b.{0,200}"
    r"|\bOperation not permitted\b.{0,200}|\bNetwork is unreachable\b.{0,200}|\bcan't start new \w+\b.{0,200}"
    r"|\bTemporary failure in name resolution\b.{0,200}|\bResource temporarily unavailable\b.{0,200})"
)
_ERROR_FIELDS: Final = frozenset({"error", "errors", "error_message", "exception", "traceback"})
_EMPTY: Final = frozenset({"", "none", "null", "false", "[]", "{}"})
_TRACEBACK: Final = "Traceback (most recent call last)"
_SEARCHED_CHARACTERS: Final = 100_000
_PROCESS_ADVICE: Final = (
    "Scripts of kind `evaluator` and `in_process` start processes on workers with tier A, at most `limits.processes` at"
    " once; candidates start none. Raise the limit, or evaluate on a machine of your own with"
    ' `evaluation = "external"`.'
)
_THREAD_ADVICE: Final = "Raise `limits.threads`, the number of threads that the sandbox allows."
FUNCTION_ADVICE: Final = "A Python function, `speciate.evolve(program, score)`, has network and environment variables."
_NETWORK_ADVICE: Final = (
    "The sandbox has no network: put the data beside the evaluator as `data_files`, or evaluate on a machine of your"
    f' own with `evaluation = "external"`. {FUNCTION_ADVICE}'
)
_WRITE_ERROR: Final = re.compile(
    r"(?:Permission denied|Operation not permitted): ['\"b]|Read-only file system|No usable temporary directory"
    r"|writable (?:cache |temporary )?directory"
)
_WRITE_ADVICE_IN_TIER_B: Final = (
    "Tier B of the sandbox forbids writing files: install bubblewrap and restart the service or repeat the command, so"
    " that tier A is used."
)
_WRITE_ADVICE: Final = "The sandbox lets programs write beneath /tmp only: use `tempfile`."
_REMEDIES: Final = (
    (
        re.compile(r"No module named '?([\w.]+)"),
        (
            "Add the package of {0} to `requirements` in problem.toml, or to requirements.txt beside an imported"
            " evaluator (or as --requirement), or install it for all workers."
        ),
    ),
    (re.compile(r"Network is unreachable|name resolution|URLError|Connect\w*Error"), _NETWORK_ADVICE),
    (re.compile(r"Operation not permitted|Resource temporarily unavailable|BlockingIOError|fork"), _PROCESS_ADVICE),
    (re.compile(r"can't start new thread"), _THREAD_ADVICE),
    (
        re.compile(r"No such file or directory: '([\w+-]{1,60})'"),
        (
            "{0} is neither a file of the problem nor a program that the sandbox sees: it sees those of the system's"
            " folders, and of the folders in SPECIATE_TOOLCHAINS."
        ),
    ),
    (
        re.compile(
            r"No such file or directory: '?(?:/[^'\n]{0,200}?/speciate-files-[^/'\n]+/[^/'\n]+/data/|/tmp/data/|\./)?"
            r"([^'\n]{1,200})"
        ),
        "Put {0} beside the evaluator: it sees the files of the problem only.",
    ),
)
FALLBACK_ADVICE: Final = "Correct the evaluator or the seed program."
_IF_REWARDS_ARE_RIGHT: Final = "If these rewards are right, set `worst_seed = true` in problem.toml."
_RAISE_THE_ERROR: Final = "If the evaluator catches an error, let it raise it: what it prints is kept only then."
METRIC_LISTS: Final = frozenset({"other metrics", UNMEASURED, "rated metrics"})
"""Labels of texts that list metrics."""
_TRACEBACK_LINE: Final = re.compile(r'(?m)^[ \t]*File "([^"\n]{1,200})", line (\d+)')
_LAST_LINE_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """The worst value of every reward, and the error that the evaluation reported beside it."""

    line: str  # the error's line; untrusted text. Empty if nothing was reported.
    place: str  # name of the text in which it stands
    remedy: str  # what to do
    certain: bool = True  # false if the line is only the end of the text, which may be about something else

    def as_failure(self) -> Failure:
        if self.line and self.certain:
            return Failure(FailureKind.CRASHED, "evaluator_reported_error", f"{self.place}: {self.line}")
        ending = f"; {self.place} ends with: {self.line}" if self.line else ", and no error is reported"
        return Failure(FailureKind.CRASHED, "evaluator_gave_worst", f"every reward has its worst value{ending}")

    def describe(self) -> str:
        reported = ", without reporting an error."
        if self.line:
            reported = f". {self.place} {'reports' if self.certain else 'ends with'}:\n{self.line}"
        return f"it scores the worst value of every reward{reported}\n{self.remedy}"


def silent_failure(problem: Problem, evaluation: Evaluation) -> SilentFailure | None:
    """Return the failure of a seed program whose rewards are the worst ones, or None.

    Problems of kind ``cases`` have no evaluator of their own: a wrong seed program is no fault there.
    """
    if problem.worst_seed or not scores_nothing(problem, evaluation):
        return None
    texts = evaluation.artifacts
    if (error := reported_error(texts, evaluation.tier)) is not None:
        return replace(error, remedy=remedy_in(problem, error))
    error = _last_words(texts) or SilentFailure("", "", FALLBACK_ADVICE)
    if beyond := _beyond_range(problem, evaluation):
        return replace(error, remedy=f"{beyond} {_IF_REWARDS_ARE_RIGHT}")
    hidden = "" if problem.kind is ProblemKind.IN_PROCESS else f"{_RAISE_THE_ERROR} "
    return replace(error, remedy=f"{hidden}{error.remedy} {_IF_REWARDS_ARE_RIGHT}")


def describe_seed_failure(problem: Problem, evaluation: Evaluation) -> str | None:
    """Return why a seed program has no usable rewards, with all details as untrusted text, or None if it has."""
    if (failure := evaluation.failure) is None:
        silent = silent_failure(problem, evaluation)
        return None if silent is None else f"The seed program cannot be scored: {silent.describe()}"
    failing = "the evaluator fails on the seed program" if failure.by_evaluator else "the seed program fails"
    lines = [f"The definition is valid, but {failing}: {failure.kind.value} ({failure.reason})", failure.detail.strip()]
    lines += [f"--- {name}\n{text.strip()}" for name, text in evaluation.artifacts.items()]
    if failure.by_evaluator and (error := reported_error({"detail": failure.detail}, evaluation.tier)) is not None:
        lines.append(remedy_in(problem, error))
    return "\n".join(filter(None, lines))


def _beyond_range(problem: Problem, evaluation: Evaluation) -> str:
    """Return what to do about a reward beyond the worst end of its range, which is often the range by default."""
    for objective, reward in zip(problem.objectives, evaluation.rewards or (), strict=False):
        if objective.role is ObjectiveRole.OBJECTIVE and objective.beats(objective.worst, reward):
            low, high = objective.range
            return (
                f"`{objective.name}` = {short_number(reward)} lies beyond its range [{short_number(low)},"
                f" {short_number(high)}]: declare its `range`, the values between a bad and a very good candidate."
            )
    return ""


def scores_nothing(problem: Problem, evaluation: Evaluation) -> bool:
    """Return True if an evaluator gave the worst value of every reward."""
    if evaluation.rewards is None or problem.kind is ProblemKind.CASES or evaluation.stopped_at is not None:
        return False
    rewards = zip(problem.objectives, evaluation.rewards, strict=True)
    return not any(o.role is ObjectiveRole.OBJECTIVE and o.beats(reward, o.worst) for o, reward in rewards)


def reported_error(texts: Mapping[str, str], tier: str = "") -> SilentFailure | None:
    """Return the last exception that the texts of an evaluation in a tier report, or None."""
    for place, text in texts.items():
        errors = [*_ERROR_LINE.finditer(ending := text[-_SEARCHED_CHARACTERS:])]
        if errors:
            line = errors[-1][0].strip() + _place(ending[: errors[-1].start()])
            return SilentFailure(line, place, remedy_for("\n".join(each[0] for each in errors), tier))
    return None


def remedy_in(problem: Problem, error: SilentFailure) -> str:
    """Return the remedy of an error; many authors expect files of the script in the working folder."""
    missing = re.search(r"No module named '?([\w.]+)|No such file or directory: '?(?:\./)?([^'\n]{1,200})", error.line)
    name = "" if missing is None else missing[2] or f"{missing[1].replace('.', '/')}.py"
    if name in problem.files:
        return f'{name} is in `files`: open it beside `__file__`, or use the text `context.files["{name}"]`.'
    return f"{name} is in `data_files`: open it beside `__file__`." if name in problem.data_files else error.remedy


def _place(traceback: str) -> str:
    """Return the last line of a traceback that is in no library."""
    for name, line in reversed(_TRACEBACK_LINE.findall(traceback)):
        if "/lib" not in name:
            return f" ({name}, line {line})"
    return ""


def stated_failure(texts: Mapping[str, str], tier: str = "") -> SilentFailure | None:
    """Return the exception that texts report, or the text of a field for errors; words in a log are no failure."""
    if (error := reported_error(texts, tier)) is not None:
        return error
    stated_texts = {
        place: text
        for place, text in texts.items()
        if _TRACEBACK in text or (place.lower() in _ERROR_FIELDS and text.strip().lower() not in _EMPTY)
    }
    return _last_words(stated_texts)


def _last_words(texts: Mapping[str, str]) -> SilentFailure | None:
    """Return the end of the last text, which may say what failed."""
    ends = {place: text.strip().rpartition("\n")[2][-_LAST_LINE_CHARACTERS:] for place, text in texts.items()}
    for place, line in reversed(ends.items()):
        if line and place not in METRIC_LISTS:
            return SilentFailure(line, place, remedy_for(texts[place][-_SEARCHED_CHARACTERS:]), certain=False)
    return None


def remedy_for(text: str, tier: str = "") -> str:
    """Return what to do about an error of an evaluation in a tier."""
    if _WRITE_ERROR.search(text):
        if tier == "B":
            return _WRITE_ADVICE_IN_TIER_B
        if "Read-only" in text:
            return _WRITE_ADVICE
    for pattern, remedy in _REMEDIES:
        if match := pattern.search(text):
            return remedy.format(*match.groups())
    return FALLBACK_ADVICE
