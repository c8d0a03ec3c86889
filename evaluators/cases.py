"""Kind ``cases``: the candidate maps inputs to outputs, and the broker compares them with the expected ones.

An objective's reward is the share of its cases passed; an objective of role ``record`` that no case counts towards is
0. A candidate that stops half-way keeps the cases it has answered. Visible cases are asked first: as long as a
candidate has not seen a hidden input, nothing it says can give one away.
"""

from __future__ import annotations

import time
from collections import Counter

from evaluators.batch import Batch, Starter
from evaluators.callee import LOADING, Answer, Callee
from evaluators.cascade import STOPPED, Measured, Score, climb
from evaluators.compare import equal
from evaluators.session import SessionEndedError
from evaluators.texts import short_json
from evaluators.tiers.sandbox import Role, Usage
from evaluators.verdict import BATCH_DEADLINE, failure_of
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.problem import Problem
from speciate.domain.stage import Step

_SHOWN_CASES = 5


def evaluate_cases(batch: Batch) -> list[Evaluation]:
    """Score every program of a batch, each in a fresh process."""
    with Starter(batch.sandbox, batch.needs(Role.CANDIDATE), len(batch.programs)) as starter:
        return [
            batch.out_of_time() if batch.expired else _evaluate(batch, starter, program, seed)
            for program, seed in batch
        ]


def _evaluate(batch: Batch, starter: Starter, program: str, seed: int) -> Evaluation:
    interview = _Interview(batch, Callee(starter.take(), program, seed, batch.problem))
    started = time.monotonic()
    try:
        starter.warm()
        score = interview.score()
    finally:
        wall_s = time.monotonic() - started
        usage = interview.end()
    return Evaluation(
        rewards=score.rewards,
        failure=score.failure,
        stopped_at=score.stopped_at,
        tier=batch.sandbox.name,
        wall_s=wall_s,
        cpu_s=usage.cpu_s,
        memory_bytes=usage.memory_bytes,
        artifacts=interview.artifacts | score.artifacts,
    )


class _Interview:
    """Asks one candidate its cases, stage by stage."""

    def __init__(self, batch: Batch, callee: Callee) -> None:
        self._batch, self._problem, self._callee = batch, batch.problem, callee
        self._answers: dict[int, Answer] = {}
        self._open_answers: set[int] = set()  # given before the candidate had seen any hidden input
        self._hidden_asked = False
        self._stop: Failure | None = None
        self._deadline = batch.deadline
        self._logs: dict[str, str] = {}

    def score(self) -> Score:
        """Ask everything that the cascade wants."""
        limit_s = self._problem.limits.wall_s
        if (failure := self._callee.build(self._batch.deadline)) is not None:
            return Score(None, failure=BATCH_DEADLINE if self._batch.expired else failure)
        self._deadline = min(time.monotonic() + limit_s, self._batch.deadline)
        return climb(self._problem, self._measure)

    def end(self) -> Usage:
        """Stop the candidate's process and return what it used."""
        usage, self._logs = self._callee.end()
        return usage

    @property
    def artifacts(self) -> dict[str, str]:
        """Texts for feedback; nothing that could quote a hidden input."""
        problem, artifacts = self._problem, dict[str, str]()
        if self._stop is not None:
            given = sum(answer.failure is None for answer in self._answers.values())
            artifacts[STOPPED] = (
                f"{self._stop.kind}: {self._stop.detail} ({given} of {len(problem.cases)} cases answered)"
            )
        failed = [i for i in sorted(self._open_answers) if i != LOADING and not self._passes(i)]
        if failed:
            artifacts["cases"] = "\n".join(_line(problem, i, self._answers[i]) for i in failed[:_SHOWN_CASES])
        if not any(case.hidden for case in problem.cases):
            # What a program prints may quote any input it was given.
            artifacts |= {name: text for name, text in self._logs.items() if text}
        return artifacts

    def _measure(self, step: Step) -> Measured | Failure:
        names = {objective.name for objective in step.objectives}
        asked = [i for i in range(len(self._problem.cases)) if self._counts_towards(i) in names]
        for hidden in (False, True):
            self._ask([i for i in asked if self._problem.cases[i].hidden is hidden], hidden)
        if (failure := self._failure(asked)) is not None:
            return failure
        total = Counter(map(self._counts_towards, asked))
        won = Counter(self._counts_towards(i) for i in asked if self._passes(i))
        return {name: won[name] / total[name] if total[name] else 0.0 for name in names}

    def _ask(self, indices: list[int], hidden: bool) -> None:
        if self._stop is not None or LOADING in self._answers or not indices:
            return
        self._hidden_asked |= hidden
        for index in indices:
            self._callee.ask(index, self._problem.entry_point, self._problem.cases[index].input)
        try:
            for _ in indices:
                answer = self._callee.answer(self._deadline)
                self._answers[answer.index] = answer
                if not self._hidden_asked:
                    self._open_answers.add(answer.index)
                if answer.index == LOADING:
                    return
        except SessionEndedError as ended:
            late = self._batch.expired
            self._stop = BATCH_DEADLINE if late else failure_of(ended, self.end(), self._problem.limits)

    def _failure(self, asked: list[int]) -> Failure | None:
        """Return the failure of a candidate that answered nothing of a stage, or that the batch had no time for."""
        if self._stop is BATCH_DEADLINE:
            return self._stop
        given = [answer for i, answer in self._answers.items() if i == LOADING or i in asked]
        if any(answer.failure is None for answer in given):
            return None
        if self._stop is not None:
            return self._stop
        if not given:
            return None  # a stage without cases: objectives that are only recorded
        first = given[0]
        failure = first.failure or Failure(FailureKind.INVALID_OUTPUT, "no_answer")
        return failure if first.index in self._open_answers else Failure(failure.kind, failure.reason)

    def _passes(self, index: int) -> bool:
        answer, case = self._answers.get(index), self._problem.cases[index]
        return answer is not None and answer.failure is None and equal(case.expected, answer.value, case.tolerance)

    def _counts_towards(self, index: int) -> str:
        return self._problem.cases[index].reward or self._problem.objectives[0].name


def _line(problem: Problem, index: int, answer: Answer) -> str:
    case = problem.cases[index]
    got = short_json(answer.value)
    if answer.failure is not None:
        lines = answer.failure.detail.strip().splitlines() or [answer.failure.reason]
        got = f"no value ({lines[-1][:200]})"
    return f"input {short_json(case.input)} expected {short_json(case.expected)} got {got}"
