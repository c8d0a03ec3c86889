"""Kind ``evaluator``: the author's ``evaluate(candidate, context)`` drives the candidate from another process.

The script calls the candidate over its channel, which the worker lets it use; calls with a time limit of their own, and
those after the death of a candidate's process, pass through the worker. Both ends parse every answer as the text of an
untrusted process. The problem's wall limit counts while the script waits for the candidate; the
script's own time has a separate limit. In the result, ``wall_s`` covers the whole evaluation, ``cpu_s`` and
``memory_bytes`` only the candidate.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Final

from pydantic import JsonValue

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.candidate_process import CallResult
from evaluators.cascade import StageRewards, run_cascade
from evaluators.channel import Message
from evaluators.failures import SUPERVISOR_KILLED, redacted
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.script import RAISED, Script, ScriptOutput
from evaluators.session import EndReason
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ProcessRole
from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.stage import CascadeStage


def evaluate_scripted(batch: EvaluationBatch) -> list[Evaluation]:
    with (
        Script(batch) as script,
        ProcessStarter(batch.home, batch.needs(ProcessRole.CANDIDATE), len(batch.programs)) as starter,
    ):
        return batch.evaluate_each(partial(_evaluate, batch, script, starter))


def _evaluate(batch: EvaluationBatch, script: Script, starter: ProcessStarter, program: str, seed: int) -> Evaluation:
    findings = ScriptOutput()
    reasons: set[str] = set()  # of failures that the worker observed in the candidate's calls
    with RestartingCandidate(batch, starter, program, seed) as candidate:
        started = time.monotonic()

        def measure(step: CascadeStage) -> StageRewards | Failure:
            carry = partial(_carry, batch, script, candidate, findings, reasons)
            measured = script.measure(step, program, seed, carry, findings, reasons, candidate)
            if SUPERVISOR_KILLED.reason in reasons:
                return SUPERVISOR_KILLED  # the script may have reported it as the candidate's failure
            if candidate.knows_held_out and isinstance(measured, Failure) and measured.reason != RAISED:
                return redacted(measured, _HELD_OUT)  # the script leaves out the text of what it raised
            if isinstance(measured, Failure) and measured.reason == RAISED and findings.failed_call:
                raised = measured.detail.rstrip().rpartition("\n")[2].partition(":")[0]
                name, cause = findings.failed_call.partition(":")[0], findings.failed_call.rstrip()
                said = f"{measured.detail}{cause}\nThe evaluator raised {raised} after the call {name} failed."
                return replace(measured, detail=sanitize(said))
            return measured

        score = run_cascade(batch.problem, measure, program)
        wall_s = time.monotonic() - started
    printed = {name: text for name, text in candidate.logs.items() if text}
    tier, memory_bytes = batch.home.name, candidate.memory_bytes
    evaluation = replace(score, tier=tier, wall_s=wall_s, cpu_s=candidate.cpu_s, memory_bytes=memory_bytes)
    if candidate.knows_held_out:
        findings.log = ""
    complete = findings.added_to(batch.problem, evaluation)
    return replace(complete, artifacts={**printed, **complete.artifacts})


def _carry(
    batch: EvaluationBatch, script: Script, candidate: RestartingCandidate, findings: ScriptOutput, reasons: set[str]
) -> Message:
    """Serve the script while it calls the candidate, recording why calls fail; return its first other message."""
    limit = _TimeLimit(script, candidate, batch.author_s)
    while True:
        message = script.receive(limit)
        call_began, candidate_s = time.monotonic(), limit.direct_s()
        if (call := _call_in(message)) is not None:
            name = call[0]
            answer = candidate.call(*call, candidate_s, held_out=message.get("held_out") is True)
        elif isinstance(message.get("refused"), dict):
            name = str(message.get("function"))
            answer = candidate.refused(message["refused"], candidate_s)
        elif message.get("lost") in (EndReason.GONE, EndReason.BROKEN):
            name = str(message.get("function"))
            answer = candidate.lost(EndReason(message["lost"]), sanitize(str(message.get("detail"))), candidate_s)
        else:
            return message
        if candidate.knows_held_out and answer.failure is not None:
            answer = replace(answer, failure=redacted(answer.failure, _HELD_OUT))
        script.reply(_reply(answer, close_direct=not candidate.channel_acquired))
        if (failure := answer.failure) is not None:
            reasons.add(failure.reason)
            findings.failed_call = f"{name}: {failure.kind.value} ({failure.reason})\n{failure.detail}"
        limit.relayed_s += time.monotonic() - call_began  # do not count the candidate's time


_HELD_OUT: Final = "on inputs that are not shown"
_GLANCE_S: Final = 0.01
"""How late the end of a limit may be noticed."""


class _TimeLimit:
    """The script's time limit, or the candidate's while the script waits for it; ``relayed_s`` is the duration of all
    calls that passed through the worker.
    """

    def __init__(self, script: Script, candidate: RestartingCandidate, limit_s: float) -> None:
        self._clock, self._candidate = script.clock, candidate
        self._own = script.allow(limit_s)
        self._direct_s = 0.0
        self.relayed_s = 0.0

    def direct_s(self) -> float:
        """Return the seconds of the candidate's turns over the direct channel; those until it was closed."""
        if self._candidate.channel_acquired:
            self._direct_s = self._clock.read().candidate_s
        return self._direct_s

    def left_s(self) -> float:
        """Return a lower bound on the seconds left; 0 or less means that the script's time is up."""
        acquired, clock = self._candidate.channel_acquired, self._clock.read()
        self._own.paused_s = self.relayed_s + self.direct_s()
        if not acquired:
            return self._own.left_s()
        began = time.monotonic()
        theirs_s = self._candidate.left_s(self._direct_s)
        if theirs_s <= 0:
            self.relayed_s += time.monotonic() - began  # ending its process takes a while
        own_s = self._own.left_s()
        # The turn may change at once, which does not wake the worker.
        if clock.calling and theirs_s > 0:
            return min(theirs_s, max(own_s, _GLANCE_S))
        return min(own_s, max(theirs_s, _GLANCE_S))


def _call_in(message: Message) -> tuple[str, list[JsonValue], float | None] | None:
    name, args, timeout_s = message.get("call"), message.get("args"), message.get("timeout_s")
    if not isinstance(name, str) or not isinstance(args, list):
        return None
    return (name, args, timeout_s) if timeout_s is None or isinstance(timeout_s, int | float) else None


def _reply(answer: CallResult, *, close_direct: bool) -> Message:
    if (failure := answer.failure) is None:
        return {"value": answer.value}
    description = {"kind": failure.kind.value, "reason": failure.reason, "detail": failure.detail}
    return {"failure": description, "close_direct": close_direct}
