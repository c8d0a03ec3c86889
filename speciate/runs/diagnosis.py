"""Decide when a run must pause, for it cannot make progress: its evaluator is broken, or nothing new is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.diagnosis import REPEATED, Diagnosis, Fault
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.ports.work import CandidateOutcome, RunContext
from speciate.prompts.rejection import Reason
from speciate.runs.progress import RunProgress
from speciate.runs.silent_failure import silent_failure

FAULTY_BATCHES: Final = 3
FAULTY_PROGRAMS: Final = 16
"""A run pauses after this many batches and programs without a score for the evaluator's reason."""

UNREADABLE_FIRST: Final = 48
"""A run pauses if its first answers cannot be read: three batches of the default size."""
UNREADABLE_LATER: Final = 160
"""A run pauses after this many unreadable answers in a row: ten batches of the default size."""

SAYING_WHY: Final = frozenset({Reason.REFUSED, Reason.ONLY_REASONING})
"""Reasons that say what to do. A second line of the detail is the remedy."""
SAYING_WHY_FIRST: Final = 6
SAYING_WHY_LATER: Final = 32
"""A run pauses after this many answers in a row with the same one of these reasons; a refused prompt is one answer."""

REPEATS: Final = {1: 15, 2: 22}
REPEATS_OF_MORE: Final = 96
"""A run pauses after this many answers in a row that repeat programs of the run, by the number of these programs.

An endpoint at temperature 0 gives the same answer to every request. A policy that still finds something new now and
then repeats more of its programs.
"""
_MOST_REPEATED: Final = 32
"""Programs that are counted; a policy that repeats more of them still varies its answers."""

_SPOILED: Final = (
    "A learned version of the policy wrote these completions: training has spoiled it. Start a new run with a smaller"
    " learning_rate or a larger kl of learning."
)


def diagnose(
    progress: RunProgress, context: RunContext, first: int, outcomes: Sequence[CandidateOutcome]
) -> Diagnosis | None:
    """Count a batch; return a diagnosis if the run must pause.

    Args:
        progress: Progress of the run; its ``streaks`` change in place.
        context: The run.
        first: Number of the first candidate.
        outcomes: Outcomes of the batch.
    """
    numbered = list(enumerate(outcomes, start=first))
    return (
        _silent(context.problem, numbered)
        or _evaluator(progress.streaks, numbered)
        or _policy(progress.streaks, numbered)
        or (_repeating(progress.streaks, numbered) if context.samples_at_endpoint else None)
    )


def forget(progress: RunProgress) -> None:
    """Start counting from scratch when the run resumes."""
    progress.streaks = {name: count for name, count in progress.streaks.items() if name == "readable"}
    progress.diagnosis = {}


def _silent(problem: Problem, outcomes: Sequence[tuple[int, CandidateOutcome]]) -> Diagnosis | None:
    """Return a diagnosis if the evaluator gave every seed program the worst value of every reward."""
    seeds = [(number, o.evaluation) for number, o in outcomes if o.proposal.role is PolicyRole.SEED]
    found = [(number, silent_failure(problem, evaluation)) for number, evaluation in seeds]
    if not found or any(silent is None for _, silent in found):
        return None
    number, silent = found[-1]
    assert silent is not None  # noqa: S101 - checked above
    return Diagnosis.of(Fault.EVALUATOR, silent.as_failure(), number, len(found), remedy=silent.remedy)


def _evaluator(streaks: dict[str, int], outcomes: Sequence[tuple[int, CandidateOutcome]]) -> Diagnosis | None:
    new = [(number, o) for number, o in outcomes if o.proposal.failure is None and o.duplicate_of is None]
    if any(outcome.evaluation.rewards is not None for _, outcome in new):
        streaks.pop("batches", None)
        streaks.pop("programs", None)
        return None
    failures = [(number, outcome.evaluation.failure) for number, outcome in new]
    faults = [(number, failure) for number, failure in failures if failure and failure.by_evaluator]
    # A batch in which most programs fail by themselves says nothing about the evaluator.
    if not faults or 2 * len(faults) < len(new):
        return None
    streaks["batches"] = batches = streaks.get("batches", 0) + 1
    streaks["programs"] = programs = streaks.get("programs", 0) + len(faults)
    seed = any(outcome.proposal.role is PolicyRole.SEED for _, outcome in new)
    if not seed and (batches < FAULTY_BATCHES or programs < FAULTY_PROGRAMS):
        return None
    number, failure = faults[-1]
    return Diagnosis.of(Fault.EVALUATOR, failure, number, programs)


def _policy(streaks: dict[str, int], outcomes: Sequence[tuple[int, CandidateOutcome]]) -> Diagnosis | None:
    answers = [
        (number, o.proposal)
        for number, o in outcomes
        if o.proposal.role is not PolicyRole.SEED and not o.proposal.proposed_by
    ]
    unreadable = [(number, proposal.failure) for number, proposal in answers if proposal.failure is not None]
    if len(unreadable) < len(answers):
        for name in ("unreadable", *SAYING_WHY):
            streaks.pop(name, None)
        streaks["readable"] = 1
    elif unreadable:
        if (diagnosis := _saying_why(streaks, unreadable)) is not None:
            return diagnosis
        streaks["unreadable"] = count = streaks.get("unreadable", 0) + len(unreadable)
        if count >= (UNREADABLE_LATER if "readable" in streaks else UNREADABLE_FIRST):
            number, failure = unreadable[-1]
            spoiled = _SPOILED if any(proposal.version for _, proposal in answers) else None
            return Diagnosis.of(Fault.POLICY, failure, number, count, remedy=spoiled)
    return None


def _saying_why(streaks: dict[str, int], unreadable: Sequence[tuple[int, Failure]]) -> Diagnosis | None:
    """Return a diagnosis if enough answers in a row have the same reason that says what to do."""
    for reason in SAYING_WHY:
        if any(failure.reason != reason for _, failure in unreadable):
            streaks.pop(reason, None)
            continue
        streaks[reason] = count = streaks.get(reason, 0) + len(unreadable)
        if count >= (SAYING_WHY_LATER if "readable" in streaks else SAYING_WHY_FIRST):
            number, failure = unreadable[-1]
            said, _, remedy = failure.detail.partition("\n")
            return Diagnosis.of(Fault.POLICY, replace(failure, detail=said), number, count, remedy=remedy or None)
    return None


def _repeating(streaks: dict[str, int], outcomes: Sequence[tuple[int, CandidateOutcome]]) -> Diagnosis | None:
    """Return a diagnosis if the policies give the same few answers again and again."""
    numbers = Counter({name: count for name, count in streaks.items() if name.startswith(REPEATED)})
    last = 0
    for number, outcome in outcomes:
        proposal = outcome.proposal
        if outcome.repeats and proposal.role is not PolicyRole.SEED and not proposal.proposed_by:
            numbers[f"{REPEATED}:{outcome.duplicate_of}"] += 1
            last = number
        elif outcome.duplicate_of is None and proposal.failure is None:
            numbers.clear()
    for name in [name for name in streaks if name.startswith(REPEATED)]:
        del streaks[name]
    if len(numbers) > _MOST_REPEATED:
        return None
    streaks |= numbers
    count = numbers.total()
    if not last or count < REPEATS.get(len(numbers), REPEATS_OF_MORE):
        return None
    such = [name.rpartition(":")[2] for name, _ in numbers.most_common(3)]
    detail = f"all give the program of candidate {such[0]}"
    if len(numbers) > 1:
        detail = f"all give one of {len(numbers)} programs, such as those of candidates {', '.join(such)}"
    return Diagnosis.of(Fault.POLICY, Failure(FailureKind.REJECTED, REPEATED, detail), last, count)
