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


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """An error that an evaluation reported while it gave rewards.

    Attributes:
        line: The error's line; untrusted text.
        place: Name of the text in which it stands.
        remedy: What to do.
    """

    line: str
    place: str
    remedy: str

    def as_failure(self) -> Failure:
        """Return it as the failure of a candidate."""
        return Failure(FailureKind.CRASHED, SILENT, f"{self.place}: {self.line}")

    def describe(self) -> str:
        """Return it in a few lines."""
        return f"it scores the worst value of every reward, and its {self.place} reports:\n{self.line}\n{self.remedy}"


def silent_failure(problem: Problem, evaluation: Evaluation) -> SilentFailure | None:
    """Return the error of a seed program's evaluation that gave the worst value of every reward, or None.

    Problems of kind ``cases`` have no evaluator of their own: a wrong seed program is no fault there.
    """
    return reported_error(evaluation.artifacts) if scores_nothing(problem, evaluation) else None


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
