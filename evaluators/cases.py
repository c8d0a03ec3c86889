"""Kind ``cases``: the candidate maps inputs to outputs, and the worker compares them with the expected ones.

An objective's reward is the fraction of its cases that pass. An objective of role ``record`` without cases is 0. A
candidate that stops halfway keeps its answered cases. Visible cases run first: until a candidate has received a hidden
input, its output cannot reveal one.
"""

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.building import build_program
from evaluators.candidate_process import CallResult, CandidateProcess
from evaluators.cascade import STOPPED, StageRewards, run_cascade
from evaluators.compare import equal, words_of
from evaluators.contained.candidate import LOADING
from evaluators.failures import BATCH_DEADLINE, failure_of, redacted
from evaluators.session import SessionEndedError
from evaluators.text import short_json
from evaluators.tiers.sandbox import ProcessRole, ResourceUsage
from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.language import Exchange
from speciate.domain.problem import Case
from speciate.domain.stage import CascadeStage

_SHOWN_CASES = 5


def evaluate_cases(batch: EvaluationBatch) -> list[Evaluation]:
    with ProcessStarter(batch.home, batch.needs(ProcessRole.CANDIDATE), len(batch.programs)) as starter:
        return batch.evaluate_each(partial(_evaluate, batch, starter))


def _evaluate(batch: EvaluationBatch, starter: ProcessStarter, program: str, seed: int) -> Evaluation:
    built = None if batch.problem.language is None else build_program(batch, program)
    if isinstance(built, Failure):
        return Evaluation(failure=built, tier=batch.home.name)
    session = _CaseSession(batch, CandidateProcess(starter.take(), program, seed, batch.problem, built))
    started = time.monotonic()
    try:
        starter.overlap()
        score = session.score()
    finally:
        wall_s = time.monotonic() - started
        usage = session.end()
    return replace(
        score,
        tier=batch.home.name,
        wall_s=wall_s,
        cpu_s=usage.cpu_s,
        memory_bytes=usage.memory_bytes,
        artifacts={**session.artifacts, **score.artifacts},
    )


class _CaseSession:
    """Run the cases of one candidate, stage by stage."""

    def __init__(self, batch: EvaluationBatch, process: CandidateProcess) -> None:
        self._batch, self._problem, self._process = batch, batch.problem, process
        # Stores outcomes only: all answers together may exceed memory.
        self._passed: set[int] = set()
        self._values = 0
        language = self._problem.language
        self._exchanges_text = language is not None and language.exchange is Exchange.TEXT
        self._shown: dict[int, str] = {}  # first failed cases, answered before the candidate received hidden inputs
        self._hidden_asked = False
        self._unloadable: Failure | None = None
        self._refusal: Failure | None = None  # first refusal of the current stage
        self._stop: Failure | None = None
        self._logs: dict[str, str] = {}

    def score(self) -> Evaluation:
        if (failure := self._process.load(self._batch.deadline)) is not None:
            return Evaluation(failure=BATCH_DEADLINE if self._batch.expired else failure)
        self._allowance = self._process.session.allow(self._problem.limits.wall_s, self._batch.deadline)
        return run_cascade(self._problem, self._measure)

    def end(self) -> ResourceUsage:
        usage, self._logs = self._process.end()
        return usage

    @property
    def artifacts(self) -> dict[str, str]:
        """Return feedback texts, without any that could quote a hidden input."""
        problem, artifacts = self._problem, dict[str, str]()
        if self._stop is not None:
            artifacts[STOPPED] = f"{self._stop.kind}: {self._stop.detail or self._stop.reason}"
            if not self._hidden_asked:
                artifacts[STOPPED] += f" ({self._values} of {len(problem.cases)} cases answered)"
        if self._shown:
            artifacts["cases"] = "\n".join(self._shown[i] for i in sorted(self._shown))
        if not any(case.hidden for case in problem.cases):
            # A program may print any input that it received.
            artifacts |= {name: text for name, text in self._logs.items() if text}
        return artifacts

    def _measure(self, step: CascadeStage) -> StageRewards | Failure:
        names = [objective.name for objective in step.objectives]
        cases = [i for i in range(len(self._problem.cases)) if self._counts_towards(i) in names]
        values, self._refusal = self._values, self._unloadable
        for hidden in (False, True):
            self._ask([i for i in cases if self._problem.cases[i].hidden is hidden], hidden)
        if self._stop is not None and self._stop.lost:
            return self._stop  # too few answered cases to score the stage
        if self._values == values and (failure := self._stop or self._refusal) is not None:
            return failure
        total = Counter(map(self._counts_towards, cases))
        won = Counter(self._counts_towards(i) for i in cases if i in self._passed)
        return tuple(won[name] / total[name] if total[name] else 0.0 for name in names)

    def _ask(self, indices: list[int], hidden: bool) -> None:
        if self._stop is not None or self._unloadable is not None or not indices:
            return
        self._hidden_asked |= hidden
        batches = [indices] if self._problem.language is None else [[index] for index in indices]
        try:
            for batch in batches:  # one by one where the worker looks at each process
                for index in batch:
                    self._process.ask(index, self._problem.entry_point, self._problem.cases[index].input)
                for _ in batch:
                    self._judge(self._process.answer(self._allowance))
                    if self._unloadable is not None:
                        return
        except SessionEndedError as ended:
            late = self._batch.expired
            failure = failure_of(ended, self.end(), self._problem.limits)
            self._stop = BATCH_DEADLINE if late else self._told(failure)

    def _judge(self, answer: CallResult) -> None:
        failure = answer.failure
        if failure is None:
            self._values += 1
        else:
            self._refusal = self._refusal or self._told(failure)
            if answer.index == LOADING:
                self._unloadable = self._told(failure)
                return
        case = self._problem.cases[answer.index]
        expected, got = self._expected(case), answer.value
        if self._exchanges_text and case.tolerance:
            expected, got = words_of(expected), words_of(got)
        if failure is None and equal(expected, got, case.tolerance):
            self._passed.add(answer.index)
        elif not self._hidden_asked:
            self._shown[answer.index] = _line(case, answer)
            if len(self._shown) > _SHOWN_CASES:
                del self._shown[max(self._shown)]

    def _expected(self, case: Case) -> Any:
        """Return what a case expects; programs that exchange text lose the white space at the end of theirs."""
        expected = case.expected
        return expected.rstrip() if self._exchanges_text and isinstance(expected, str) else expected

    def _told(self, failure: Failure) -> Failure:
        return redacted(failure) if self._hidden_asked else failure

    def _counts_towards(self, index: int) -> str:
        return self._problem.cases[index].reward or self._problem.objectives[0].name


def _line(case: Case, answer: CallResult) -> str:
    got = short_json(answer.value)
    if answer.failure is not None:
        got = f"no value ({answer.failure.last_line[:200]})"
    return f"input {short_json(case.input)} expected {short_json(case.expected)} got {got}"
