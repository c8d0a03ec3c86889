"""Kind ``in_process`` with an image: the evaluator is a command in the candidate's container; results can be forged.

The container has the program, the evaluator's text in the file ``evaluator``, and the data files. The last line that
the command prints is the result: a JSON object of rewards by name, or a number, which is the reward ``reward``.
"""

import base64
import json
import time
from dataclasses import replace
from functools import partial
from typing import Final

from pydantic import JsonValue

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.candidate_process import CallResult
from evaluators.channel import Message
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.script import MOST_NUMBERS, OTHER, read_notes, read_outcome
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ProcessRole
from speciate.domain.candidate import Evaluation, Failure, FailureKind

EVALUATOR_FILE: Final = "evaluator"
SINGLE: Final = "reward"
"""Name of the reward if the result is a number."""


def evaluate_in_image(batch: EvaluationBatch) -> list[Evaluation]:
    with ProcessStarter(batch.home, batch.needs(ProcessRole.CANDIDATE), len(batch.programs)) as starter:
        return batch.evaluate_each(partial(_evaluate, batch, starter))


def _evaluate(batch: EvaluationBatch, starter: ProcessStarter, program: str, seed: int) -> Evaluation:
    script = base64.b64encode(batch.problem.evaluator.encode("utf-8", "replace")).decode("ascii")
    with RestartingCandidate(batch, starter, program, seed, {EVALUATOR_FILE: (script, True)}) as candidate:
        started = time.monotonic()
        answer = candidate.call("evaluate", [""], None)
        wall_s = time.monotonic() - started
    score, notes = _read(batch, answer)
    artifacts = notes | {name: text for name, text in candidate.logs.items() if text}
    return replace(score, tier=batch.home.name, wall_s=wall_s, artifacts=artifacts)


def _read(batch: EvaluationBatch, answer: CallResult) -> tuple[Evaluation, dict[str, str]]:
    if answer.failure is not None:
        return Evaluation(failure=answer.failure), {}
    problem, value = batch.problem, answer.value
    text = value if isinstance(value, str) else json.dumps(value)
    printed, _, last = text.rstrip().rpartition("\n")
    notes = {"stdout": sanitize(printed, problem.limits.log_bytes)} if printed.strip() else {}
    rewards = _rewards(last)
    if not rewards:
        detail = f"the last line is no JSON object of rewards and no number: {sanitize(last, 200)!r}"
        return Evaluation(failure=Failure(FailureKind.INVALID_OUTPUT, "no_rewards", detail)), notes
    known = {name: rewards.pop(name) for name in problem.space.names if name in rewards}
    if rewards:
        numbers = "\n".join(f"{name} = {value}" for name, value in rewards.items())
        notes[OTHER] = sanitize(numbers, MOST_NUMBERS)
    message: Message = {"rewards": known}
    outcome = read_outcome(problem.objectives, message)
    notes |= read_notes(problem, message, problem.objectives)
    return Evaluation(failure=outcome) if isinstance(outcome, Failure) else Evaluation(outcome), notes


def _rewards(line: str) -> dict[str, JsonValue]:
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if isinstance(result, int | float):
        result = {SINGLE: result}
    if not isinstance(result, dict):
        return {}
    return {name: value for name, value in result.items() if isinstance(value, int | float)}
