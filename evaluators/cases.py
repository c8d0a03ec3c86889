"""Kind ``cases``: the candidate maps inputs to outputs, and the broker compares them with the expected ones.

An objective's reward is the share of its cases passed; an objective of role ``record`` that no case counts towards is
0. A candidate that stops half-way keeps the cases it has answered. Visible cases are asked first: as long as a
candidate has not seen a hidden input, nothing it says can give one away.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.batch import Batch, Starter
from evaluators.callee import LOADING, Answer, Callee
from evaluators.compare import equal
from evaluators.session import SessionEndedError
from evaluators.texts import short_json
from evaluators.tiers.sandbox import Role
from evaluators.verdict import BATCH_DEADLINE, failure_of
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.problem import Case, Problem

_SHOWN_CASES = 5

Answers = dict[int, Answer]


@dataclass(frozen=True, slots=True)
class _Answered:
    """What a candidate answered, by number of the case, and why it stopped if it did."""

    answers: Answers
    ended: SessionEndedError | None


def evaluate_cases(batch: Batch) -> list[Evaluation]:
    """Score every program of a batch, each in a fresh process."""
    with Starter(batch.sandbox, batch.needs(Role.CANDIDATE), len(batch.programs)) as starter:
        return [
            batch.out_of_time() if batch.expired else _evaluate(batch, starter, program, seed)
            for program, seed in batch
        ]


def _evaluate(batch: Batch, starter: Starter, program: str, seed: int) -> Evaluation:
    problem = batch.problem
    callee = Callee(starter.take(), program, seed, problem.limits)
    started = time.monotonic()
    try:
        starter.warm()
        answered = _ask_all(callee, problem, min(started + problem.limits.wall_s, batch.deadline))
        late = batch.expired
    finally:
        wall_s = time.monotonic() - started
        usage, logs = callee.end()
    stop = None if answered.ended is None else failure_of(answered.ended, usage, problem.limits)
    if stop is not None and late:
        stop = BATCH_DEADLINE
    passed = {i for i, case in enumerate(problem.cases) if _passes(case, answered.answers.get(i))}
    failure = _failure(problem, answered.answers, stop)
    return Evaluation(
        rewards=_shares(problem, passed) if failure is None else None,
        failure=failure,
        tier=batch.sandbox.name,
        wall_s=wall_s,
        cpu_s=usage.cpu_s,
        memory_bytes=usage.memory_bytes,
        artifacts=_artifacts(problem, passed, answered.answers, stop, logs),
    )


def _ask_all(callee: Callee, problem: Problem, deadline: float) -> _Answered:
    answers: Answers = {}
    try:
        for hidden in (False, True):
            stage = [i for i, case in enumerate(problem.cases) if case.hidden is hidden]
            for index in stage:
                callee.ask(index, problem.entry_point, problem.cases[index].input)
            for _ in stage:
                answer = callee.answer(deadline)
                answers[answer.index] = answer
                if answer.index == LOADING:
                    return _Answered(answers, None)
    except SessionEndedError as ended:
        return _Answered(answers, ended)
    return _Answered(answers, None)


def _passes(case: Case, answer: Answer | None) -> bool:
    return answer is not None and answer.failure is None and equal(case.expected, answer.value, case.tolerance)


def _shares(problem: Problem, passed: set[int]) -> tuple[float, ...]:
    counted = [case.reward or problem.objectives[0].name for case in problem.cases]
    total, won = Counter(counted), Counter(counted[i] for i in passed)
    return tuple(won[name] / total[name] if total[name] else 0.0 for name in problem.space.names)


def _failure(problem: Problem, answers: Answers, stop: Failure | None) -> Failure | None:
    """Return the failure of a candidate that answered nothing, or that the batch had no time to score."""
    if stop is BATCH_DEADLINE:
        return stop
    if any(answer.failure is None for answer in answers.values()):
        return None
    if stop is not None:
        return stop
    first = next(iter(answers.values()))
    failure = first.failure or Failure(FailureKind.INVALID_OUTPUT, "no_answer")
    seen_hidden = first.index != LOADING and problem.cases[first.index].hidden
    return Failure(failure.kind, failure.reason) if seen_hidden else failure


def _artifacts(
    problem: Problem, passed: set[int], answers: Answers, stop: Failure | None, logs: Mapping[str, str]
) -> dict[str, str]:
    artifacts: dict[str, str] = {}
    if stop is not None:
        given = sum(answer.failure is None for answer in answers.values())
        artifacts["stopped"] = f"{stop.kind}: {stop.detail} ({given} of {len(problem.cases)} cases answered)"
    failed = [i for i, case in enumerate(problem.cases) if not case.hidden and i not in passed and i in answers]
    if failed:
        artifacts["cases"] = "\n".join(_line(problem.cases, i, answers[i]) for i in failed[:_SHOWN_CASES])
    if not any(case.hidden for case in problem.cases):
        # What a program prints may quote any input it was given.
        artifacts |= {name: text for name, text in logs.items() if text}
    return artifacts


def _line(cases: Sequence[Case], index: int, answer: Answer) -> str:
    got = short_json(answer.value)
    if answer.failure is not None:
        lines = answer.failure.detail.strip().splitlines() or [answer.failure.reason]
        got = f"no value ({lines[-1][:200]})"
    return f"input {short_json(cases[index].input)} expected {short_json(cases[index].expected)} got {got}"
