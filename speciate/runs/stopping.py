"""Decide when a run ends, pauses or raises its alarm: all of these rules are here.

- A run is completed when no unit is in flight and the budget holds no further batch (``complete_when_idle``); when its
  archive has not improved for ``stop_on_plateau`` evaluations (``notice_plateau``); when its unlock target is confirmed
  and ``stop_on_unlock`` is set (``complete``); when its budget of seconds is spent (``expire``); or when its
  campaign is completed while it waits for a grant (``complete_waiting_run``); or when its engine has ended
  (``complete_proposed``).
- It fails when its engine fails or loses its runner three times (``fail``).
- It is cancelled by a user, a tournament or a campaign (``cancel``).
- It pauses when it has spent what its campaign granted (``complete_when_idle``), or when a user, a tournament or a
  campaign pauses it (``pause``). Reported as a fault, it pauses when a shared service is unavailable, a unit loses its
  worker three times or the disk is full (``pause``), or when the evaluator or the answers of the policies show that it
  cannot make progress (``diagnose``).
- It goes on and raises its alarm when most of its latest candidates failed or repeat others (``judge_alarm``), or when
  one of several policies is unavailable (``judge_outages``).

The functions change the given ``RunProgress`` or ``RunChange``.
A run that ends discards its work in flight, except after a plateau or a spent budget: work in flight is paid for, and
its results may meet a target. Counts of answers and failures in a row are in ``RunProgress.streaks``.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from speciate.domain.campaign import WAITS_FOR_GRANT, waits_for_grant
from speciate.domain.candidate import BUILD_FAILED, Candidate, Failure, FailureKind
from speciate.domain.diagnosis import FAILURES, OUTAGE, PROGRAMS_FAIL, REPEATED, TRUNCATED, Diagnosis, Fault, alarm_name
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.ports.work import RunContext, WorkKind
from speciate.prompts.rejection import Reason
from speciate.runs.counters import DUPLICATE
from speciate.runs.payloads import final_payload
from speciate.runs.progress import ALARM_WINDOW, EARLY_ALARM, NewWork, RunChange, RunProgress
from speciate.runs.silent_failure import silent_failure

FAULTY_BATCHES: Final = 3
FAULTY_PROGRAMS: Final = 16
"""A run pauses after this many batches and programs without a score for the evaluator's reason."""

UNREADABLE_FIRST: Final = 48
"""A run pauses if its first answers cannot be read: three batches of the default size."""
UNREADABLE_LATER: Final = 160
"""A run pauses after this many unreadable answers in a row: ten batches of the default size."""

SAYING_WHY: Final = {
    Reason.REFUSED: {Reason.REFUSED},
    Reason.ONLY_REASONING: {Reason.ONLY_REASONING},
    Reason.NO_TEXT: {Reason.NO_TEXT},
    Reason.TRUNCATED: TRUNCATED,
}
"""Reasons that say what to do, by the name under which they are counted."""
SAYING_WHY_FIRST: Final = 6
SAYING_WHY_LATER: Final = 32
"""A run pauses after this many answers in a row with the same one of these reasons; a refused prompt is one answer.

So it does if its budget is spent before it had a readable answer, and the last ones have such a reason.
"""

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
_ALARM_CAUSES: Final[dict[str, str]] = {
    FailureKind.TIMEOUT: "they took too long",
    FailureKind.OUT_OF_MEMORY: "they ran out of memory",
    FailureKind.CRASHED: "they crashed",
    FailureKind.INVALID_OUTPUT: "their output was invalid",
    FailureKind.REJECTED: "their answers were refused before the evaluation",
    BUILD_FAILED: "they did not build",
}


def complete_when_idle(change: RunChange, context: RunContext) -> None:
    """Complete a run without work in flight, or pause it until its campaign grants more evaluations.

    A run that waits for proposals completes when its budget is spent or it stops improving. A run without a readable
    answer stays paused.
    """
    progress = change.progress
    unread = progress.diagnosis and "readable" not in progress.streaks
    if progress.live or unread or progress.state not in {RunState.RUNNING, RunState.PAUSED}:
        return
    if not progress.stopping and progress.granted == progress.evaluations != context.spec.budget.evaluations:
        if progress.state is RunState.RUNNING:
            pause(change, WAITS_FOR_GRANT)
        return
    spent = spent_limits(progress, context)
    if context.waits_for_proposals and not spent and not progress.stopping:
        return
    if _assess_best(change, context):
        return
    scarce = "token budget" if context.spec.budget.dollars is None else "budget"
    unaffordable = f"the rest of the {scarce} does not suffice for another request, with its prompt and max_tokens"
    exhausted = f"the budget of {' and '.join(spent)} is spent" if spent else unaffordable
    progress.state, progress.reason = RunState.COMPLETED, progress.stopping or exhausted
    _cap_seconds(progress, context)
    final = {"final": progress.final} if progress.final else {}
    change.event(EventKind.RUN_COMPLETED, reason=progress.reason, evaluations=progress.evaluations, **final)


def _assess_best(change: RunChange, context: RunContext) -> bool:
    """Evaluate the best candidate of a problem with noise once more before the run completes; False if it was."""
    progress = change.progress
    if not context.repeats or progress.best_number is None or progress.final or not context.spec.final_evaluations:
        return False
    add_final(change, progress.best_number)
    return True


def add_final(change: RunChange, number: int) -> None:
    """Evaluate a candidate after the end."""
    change.works.append(NewWork(WorkKind.CONFIRM, 0, change.progress.batches, final_payload(number)))
    change.progress.live += 1


def complete(change: RunChange, context: RunContext, reason: str) -> None:
    """Discard work in flight and complete the run, after a last look at its best candidate."""
    progress = change.progress
    if progress.state is RunState.RUNNING and _assess_best(change, context):
        change.cancel_rest = True
        progress.stopping, progress.live, progress.reserved_evaluations = reason, 1, 0
    else:
        _end(change, RunState.COMPLETED, EventKind.RUN_COMPLETED, reason)


def spent_limits(progress: RunProgress, context: RunContext) -> list[str]:
    """Return the limits of the budget that are spent; a run starts no batch then."""
    budget = context.spec.budget
    left = {
        "evaluations": progress.evaluations_left(budget),
        "tokens": progress.tokens_left(budget),
        "seconds": progress.seconds_left(budget),
        "dollars": progress.dollars_left(context),
    }
    return [name for name, amount in left.items() if amount == 0]


def _cap_seconds(progress: RunProgress, context: RunContext) -> None:
    """Charge no more seconds than the budget: detecting the end and confirmations take extra time."""
    if context.spec.budget.seconds is not None:
        progress.seconds = min(progress.seconds, context.spec.budget.seconds)


def notice_plateau(progress: RunProgress, context: RunContext) -> None:
    """Start no further batch once the archive has not improved for ``stop_on_plateau`` evaluations."""
    patience = context.spec.stop_on_plateau
    if patience is not None and progress.since_improvement() >= patience and progress.stopping is None:
        progress.stopping = f"the archive has not improved for {progress.since_improvement()} evaluations"


def complete_waiting_run(change: RunChange, context: RunContext, reason: str) -> None:
    """Complete a run that waits for a further grant; leave any other run unchanged."""
    if change.progress.state is RunState.PAUSED and waits_for_grant(change.progress.reason):
        change.progress.state, change.progress.reason = RunState.RUNNING, None
        complete(change, context, reason)


def complete_proposed(change: RunChange, context: RunContext, reason: str) -> None:
    """Complete a run whose engine has ended, after the work in flight."""
    if not change.progress.state.ended:
        change.progress.stopping = reason
        complete_when_idle(change, context)


def fail(change: RunChange, reason: str) -> None:
    _end(change, RunState.FAILED, EventKind.RUN_FAILED, reason)


def cancel(change: RunChange, reason: str | None = None) -> None:
    _end(change, RunState.CANCELLED, EventKind.RUN_CANCELLED, reason)


def out_of_time(progress: RunProgress, context: RunContext) -> bool:
    """Return True if the budget of seconds is spent, so that results arrive too late."""
    return progress.state is RunState.RUNNING and progress.seconds_left(context.spec.budget) == 0


def expire(change: RunChange, context: RunContext, confirming: int) -> None:
    """End a run whose budget of seconds is spent, and discard work in flight.

    Pending confirmations still run, since they check candidates found in time: the run ends after the last of the
    ``confirming`` units that are ready or leased.
    """
    if confirming:
        change.cancel_rest = change.spare_confirmations = True
        change.progress.live = confirming
        change.progress.reserved_evaluations = 0
    else:
        complete(change, context, "the budget of seconds is spent")
    _cap_seconds(change.progress, context)


def _end(change: RunChange, state: RunState, kind: EventKind, reason: str | None) -> None:
    progress, change.cancel_rest = change.progress, True
    progress.state, progress.reason = state, reason
    progress.live = 0
    # Tokens of open requests stay reserved until their answers arrive: quotas must count them.
    progress.reserved_evaluations = 0
    change.event(kind, reason=reason, evaluations=progress.evaluations)


def pause(
    change: RunChange, reason: str | None = None, *, fault: bool = False, diagnosis: Diagnosis | None = None
) -> None:
    """Stop dispatching work. Results of work in flight are still recorded."""
    data: dict[str, Any] = {"fault": True} if fault else {}
    if diagnosis is not None:
        data["diagnosis"] = change.progress.diagnosis = diagnosis.stored_json()
    change.progress.state, change.progress.reason = RunState.PAUSED, reason
    change.event(EventKind.RUN_PAUSED, reason=reason, **data)


def forget_streaks(progress: RunProgress) -> None:
    """Start counting from scratch when the run resumes."""
    progress.streaks = {name: count for name, count in progress.streaks.items() if name == "readable"}
    progress.diagnosis = {}


def judge_alarm(change: RunChange) -> None:
    """Raise the alarm if more than half of the latest window of candidates failed or repeat others, else clear it.

    The first alarm does not wait for a full window if more than nine tenths failed or three quarters repeat others.
    """
    progress = change.progress
    total = sum(progress.recent.values())
    failed = {kind: count for kind, count in progress.recent.items() if kind not in ("ok", DUPLICATE)}
    repeated = progress.recent.get(DUPLICATE, 0)
    share = max(sum(failed.values()), repeated) / max(total, 1)
    stands = alarm_name(progress.alarm) == FAILURES
    early = not stands and total >= EARLY_ALARM and (share > 0.9 or repeated >= 0.75 * total)
    if total < ALARM_WINDOW and not early:
        return
    if share > 0.5:
        if repeated > sum(failed.values()):
            failed = {DUPLICATE: repeated}
            advice = "set a temperature above 0, and check that the endpoint heeds temperature, seed and n"
            message = f"{share:.0%} of the last {total} candidates repeat earlier programs: {advice}"
        else:
            worst = max(failed, key=lambda kind: (failed[kind], kind))
            cause = _ALARM_CAUSES.get(worst, f"{_ALARM_CAUSES[FailureKind.REJECTED]} ({worst})")
            message = f"{share:.0%} of the last {total} candidates failed, most often because {cause}"
        progress.alarm = message
        change.event(EventKind.ALARM_RAISED, share=share, failures=failed, message=message)
    elif stands:
        progress.alarm = None
        change.event(EventKind.ALARM_CLEARED, share=share)
    progress.recent = {}


def judge_outages(change: RunChange, outages: Mapping[str, str], answered: Collection[str]) -> None:
    """Raise the alarm if a policy is unavailable and others answer for it; clear it once this policy answers again.

    ``outages`` are sentences by the digest of a policy, ``answered`` the digests of the policies that answered. An
    alarm about failed candidates is not replaced.
    """
    progress = change.progress
    cause = next((name for name in progress.streaks if name.startswith(OUTAGE)), None)
    if progress.alarm is None and outages:
        digest, progress.alarm = next(iter(outages.items()))
        progress.streaks.pop(cause or "", None)
        progress.streaks[f"{OUTAGE}:{digest}"] = 1
        change.event(EventKind.ALARM_RAISED, name=OUTAGE, message=progress.alarm)
    elif alarm_name(progress.alarm) == OUTAGE and (cause is None or cause.partition(":")[2] in answered):
        progress.alarm = None
        progress.streaks.pop(cause or "", None)
        change.event(EventKind.ALARM_CLEARED, name=OUTAGE)


def diagnose(progress: RunProgress, context: RunContext, candidates: Sequence[Candidate]) -> Diagnosis | None:
    """Count a batch; return a diagnosis if the run must pause, since it cannot make progress."""
    return (
        _worst_seeds(context.problem, candidates)
        or _faulty_evaluator(progress, candidates)
        or _unreadable_answers(progress.streaks, candidates, last=bool(spent_limits(progress, context)))
        or (_repeated_answers(progress.streaks, candidates) if context.samples_at_endpoint else None)
    )


def _worst_seeds(problem: Problem, candidates: Sequence[Candidate]) -> Diagnosis | None:
    """Return a diagnosis if the evaluator gave every seed program the worst value of every reward."""
    roles = (PolicyRole.SEED, PolicyRole.REPEAT)  # noise may give one evaluation the worst value
    seeds = [(c.number, c.evaluation) for c in candidates if c.proposal.role in roles]
    if all(c.proposal.role is not PolicyRole.SEED for c in candidates):
        return None
    silent = [(number, silent_failure(problem, evaluation)) for number, evaluation in seeds]
    if any(failure is None for _, failure in silent):
        return None
    number, failure = silent[-1]
    assert failure is not None  # noqa: S101 - checked above
    return Diagnosis.of(Fault.EVALUATOR, failure.as_failure(), number, len(silent), remedy=failure.remedy)


def _faulty_evaluator(progress: RunProgress, candidates: Sequence[Candidate]) -> Diagnosis | None:
    streaks = progress.streaks
    new = [each for each in candidates if each.proposal.failure is None and each.duplicate_of is None]
    if any(each.evaluation.rewards is not None for each in new):
        streaks.pop("batches", None)
        streaks.pop("programs", None)
        return None
    failures = [(each.number, each.evaluation.failure) for each in new]
    faults = [(number, failure) for number, failure in failures if failure and failure.by_evaluator]
    # A batch in which most programs fail by themselves says nothing about the evaluator.
    if not faults or 2 * len(faults) < len(new):
        return None
    streaks["batches"] = batches = streaks.get("batches", 0) + 1
    streaks["programs"] = programs = streaks.get("programs", 0) + len(faults)
    seed = any(each.proposal.role is PolicyRole.SEED for each in new)
    if not seed and (batches < FAULTY_BATCHES or programs < FAULTY_PROGRAMS):
        return None
    number, failure = faults[-1]
    by_programs = failure.reserved and not failure.lost
    if by_programs and progress.best_number is not None and not seed:
        return Diagnosis.of(Fault.POLICY, failure, number, programs, remedy=PROGRAMS_FAIL)
    return Diagnosis.of(Fault.EVALUATOR, failure, number, programs)


def _unreadable_answers(streaks: dict[str, int], candidates: Sequence[Candidate], *, last: bool) -> Diagnosis | None:
    answers = [(each.number, each.proposal) for each in candidates if each.proposal.by_policy]
    unreadable = [(number, proposal.failure) for number, proposal in answers if proposal.failure is not None]
    if len(unreadable) < len(answers):
        for name in ("unreadable", *SAYING_WHY):
            streaks.pop(name, None)
        streaks["readable"] = 1
    elif unreadable:
        if (diagnosis := _saying_why(streaks, unreadable, last=last)) is not None:
            return diagnosis
        streaks["unreadable"] = count = streaks.get("unreadable", 0) + len(unreadable)
        if count >= (UNREADABLE_LATER if "readable" in streaks else UNREADABLE_FIRST):
            number, failure = unreadable[-1]
            spoiled = _SPOILED if any(proposal.version for _, proposal in answers) else None
            return Diagnosis.of(Fault.POLICY, failure, number, count, remedy=spoiled)
    return None


def _saying_why(streaks: dict[str, int], unreadable: Sequence[tuple[int, Failure]], *, last: bool) -> Diagnosis | None:
    first = 1 if last else SAYING_WHY_FIRST
    for name, reasons in SAYING_WHY.items():
        if any(failure.reason not in reasons for _, failure in unreadable):
            streaks.pop(name, None)
            continue
        streaks[name] = count = streaks.get(name, 0) + len(unreadable)
        if count >= (SAYING_WHY_LATER if "readable" in streaks else first):
            number, failure = unreadable[-1]
            summary, _, rest = failure.detail.partition("\n")
            remedy = None if failure.reason in TRUNCATED else rest or None
            return Diagnosis.of(Fault.POLICY, replace(failure, detail=summary), number, count, remedy=remedy)
    return None


def _repeated_answers(streaks: dict[str, int], candidates: Sequence[Candidate]) -> Diagnosis | None:
    """Return a diagnosis if the policies give the same few answers again and again."""
    numbers = Counter({name: count for name, count in streaks.items() if name.startswith(REPEATED)})
    last = 0
    for candidate in candidates:
        proposal = candidate.proposal
        if not proposal.by_policy:
            continue
        if candidate.is_repetition:
            numbers[f"{REPEATED}:{candidate.duplicate_of}"] += 1
            last = candidate.number
        elif candidate.duplicate_of is None and proposal.failure is None:
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
