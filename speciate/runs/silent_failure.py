"""Recognise an evaluation that gave rewards although it failed: evaluators catch their own exceptions and answer 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.objective import Direction, ObjectiveRole
from speciate.domain.problem import Problem, ProblemKind

SILENT: Final = "evaluator_reported_error"
"""Reason of the failure that stands for a silent one."""
WORST: Final = "evaluator_gave_worst"
"""Reason of the failure that stands for the worst rewards of a seed program without any error."""

_ERROR_LINE: Final = re.compile(
    r"(?m)^.{0,400}?(?:\b[A-Za-z_.]{0,80}(?:Error|Exception)\b ?[:(].{0,1000}|\bNo module named\b.{0,200}"
    r"|\bOperation not permitted\b.{0,200}|\bNetwork is unreachable\b.{0,200}|\bcan't start new \w+\b.{0,200}"
    r"|\bTemporary failure in name resolution\b.{0,200}|\bResource temporarily unavailable\b.{0,200})"
)
_SHOWN: Final = 100_000
_PROCESSES: Final = (
    "Scripts of kind `evaluator` and `in_process` start processes on workers with tier A, at most `limits.processes` at"
    " once; candidates start none. Raise the limit, or evaluate on a machine of your own with"
    ' `evaluation = "external"`.'
)
_THREADS: Final = "Raise `limits.threads`, the number of threads that the sandbox allows."
_NETWORK: Final = (
    "The sandbox has no network: put the data beside the evaluator as `data_files`, or evaluate on a machine of your"
    ' own with `evaluation = "external"`.'
)
_REMEDIES: Final = (
    (
        re.compile(r"No module named '?([\w.]+)"),
        (
            "Add the package of {0} to `requirements` in problem.toml, or to requirements.txt beside an imported"
            " evaluator, or install it for all workers."
        ),
    ),
    (
        re.compile(r"Operation not permitted|Resource temporarily unavailable|BlockingIOError|fork"),
        _PROCESSES,
    ),
    (re.compile(r"can't start new thread"), _THREADS),
    (re.compile(r"Network is unreachable|name resolution|URLError|ConnectionError|ConnectionRefused"), _NETWORK),
    (
        re.compile(r"No such file or directory: '?([^'\n]{1,200})"),
        "Put {0} beside the evaluator: it sees the files of the problem only.",
    ),
)
_OTHERWISE: Final = "Correct the evaluator or the seed program."
_NO_ERROR: Final = f"{_OTHERWISE} If these rewards are right, set `worst_seed = true` in problem.toml."


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """The worst value of every reward, and the error that the evaluation reported beside it.

    Attributes:
        line: The error's line; untrusted text. Empty if none was reported.
        place: Name of the text in which it stands.
        remedy: What to do.
    """

    line: str
    place: str
    remedy: str

    def as_failure(self) -> Failure:
        """Return it as the failure of a candidate."""
        if not self.line:
            return Failure(FailureKind.CRASHED, WORST, "every reward has its worst value, and no error is reported")
        return Failure(FailureKind.CRASHED, SILENT, f"{self.place}: {self.line}")

    def describe(self) -> str:
        """Return it in a few lines."""
        reported = f", and its {self.place} reports:\n{self.line}" if self.line else ", without reporting an error."
        return f"it scores the worst value of every reward{reported}\n{self.remedy}"


def silent_failure(problem: Problem, evaluation: Evaluation) -> SilentFailure | None:
    """Return the failure of a seed program whose rewards are the worst ones, or None.

    Problems of kind ``cases`` have no evaluator of their own: a wrong seed program is no fault there.
    """
    if problem.worst_seed or not scores_nothing(problem, evaluation):
        return None
    return reported_error(evaluation.artifacts) or SilentFailure("", "", _NO_ERROR)


def scores_nothing(problem: Problem, evaluation: Evaluation) -> bool:
    """Return True if an evaluator gave the worst value of every reward."""
    if evaluation.rewards is None or problem.kind is ProblemKind.CASES or evaluation.stopped_at is not None:
        return False
    for objective, reward in zip(problem.objectives, evaluation.rewards, strict=True):
        low, high = objective.range
        if objective.role is not ObjectiveRole.OBJECTIVE:
            continue
        if reward > low if objective.direction is Direction.MAXIMIZE else reward < high:
            return False
    return True


def reported_error(texts: Mapping[str, str]) -> SilentFailure | None:
    """Return the last error that the texts of an evaluation report, or None."""
    for place, text in texts.items():
        lines = [found[0].strip() for found in _ERROR_LINE.finditer(text[-_SHOWN:])]
        if lines:
            return SilentFailure(lines[-1], place, remedy_for("\n".join(lines)))
    return None


def remedy_for(text: str) -> str:
    """Return what to do about an error."""
    for pattern, remedy in _REMEDIES:
        if found := pattern.search(text):
            return remedy.format(*found.groups())
    return _OTHERWISE
