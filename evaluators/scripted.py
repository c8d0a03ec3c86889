"""Kind ``evaluator``: the author's ``evaluate(candidate, context)`` drives the candidate from another process.

The broker relays calls of the script to the candidate and parses every answer before the script receives it. The
problem's wall limit counts while the script waits for the candidate; the script's own time has a separate limit. In the
result, ``wall_s`` covers the whole evaluation, ``cpu_s`` and ``memory_bytes`` only the candidate.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.candidate_process import CallResult
from evaluators.cascade import StageRewards, run_cascade
from evaluators.channel import Message
from evaluators.failures import SUPERVISOR_KILLED
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.script import Script, ScriptOutput
from evaluators.tiers.sandbox import ProcessRole
from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.stage import CascadeStage


def evaluate_scripted(batch: EvaluationBatch) -> list[Evaluation]:
    """Score every program of a batch: one process for the script, a fresh one for each candidate."""
    with (
        Script(batch) as script,
        ProcessStarter(batch.home, batch.needs(ProcessRole.CANDIDATE), len(batch.programs)) as starter,
    ):
        return [
            batch.out_of_time() if batch.expired else _evaluate(batch, script, starter, program, seed)
            for program, seed in batch
        ]


def _evaluate(batch: EvaluationBatch, script: Script, starter: ProcessStarter, program: str, seed: int) -> Evaluation:
    findings = ScriptOutput()
    reasons: set[str] = set()  # of failures that the broker observed in the candidate's calls
    with RestartingCandidate(batch, starter, program, seed) as candidate:
        started = time.monotonic()

        def measure(step: CascadeStage) -> StageRewards | Failure:
            carry = partial(_carry, batch, script, candidate, findings, reasons)
            measured = script.measure(step, program, seed, carry, findings, reasons)
            # The script may have reported it as the candidate's failure.
            return SUPERVISOR_KILLED if SUPERVISOR_KILLED.reason in reasons else measured

        score = run_cascade(batch.problem, measure)
        wall_s = time.monotonic() - started
    printed = {name: text for name, text in candidate.logs.items() if text}
    evaluation = Evaluation(
        rewards=score.rewards,
        failure=score.failure,
        stopped_at=score.stopped_at,
        tier=batch.home.name,
        wall_s=wall_s,
        cpu_s=candidate.cpu_s,
        memory_bytes=candidate.memory_bytes,
        artifacts=score.artifacts,
    )
    complete = findings.added_to(batch.problem, evaluation)
    return replace(complete, artifacts={**printed, **complete.artifacts})


def _carry(
    batch: EvaluationBatch, script: Script, candidate: RestartingCandidate, findings: ScriptOutput, reasons: set[str]
) -> Message:
    """Relay calls to the candidate, recording why they fail; return the script's first message that is not a call."""
    allowance = script.allow(batch.author_s)
    while True:
        message = script.receive(allowance)
        if (call := _call_in(message)) is None:
            return message
        asked = time.monotonic()
        answer = candidate.call(*call)
        script.reply(_reply(answer))
        if (failure := answer.failure) is not None:
            reasons.add(failure.reason)
            findings.failed_call = f"{call[0]}: {failure.kind.value} ({failure.reason})\n{failure.detail}"
        allowance.extend(time.monotonic() - asked)  # do not count the candidate's time


def _call_in(message: Message) -> tuple[str, list[JsonValue], float | None] | None:
    """Return the function, the arguments and the time limit of a message that is a call, else None."""
    name, args, timeout_s = message.get("call"), message.get("args"), message.get("timeout_s")
    if not isinstance(name, str) or not isinstance(args, list):
        return None
    return (name, args, timeout_s) if timeout_s is None or isinstance(timeout_s, int | float) else None


def _reply(answer: CallResult) -> Message:
    if (failure := answer.failure) is None:
        return {"value": answer.value}
    return {"failure": {"kind": failure.kind.value, "reason": failure.reason, "detail": failure.detail}}
