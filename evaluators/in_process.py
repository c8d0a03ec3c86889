"""Kind ``in_process``: the author's script imports the candidate in one contained process; results can be forged.

This kind runs evaluators of other projects, which take the path of a program and return a dict of numbers. Each
candidate gets a fresh process, which can reach neither other candidates nor the host. The process reports its rewards
itself, so they cannot be trusted. Names that are not objectives become a note.
"""

import math
import time
from dataclasses import replace
from functools import partial

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.cascade import StageRewards, run_cascade
from evaluators.channel import Message
from evaluators.contained.wire import PROGRESS_CHARS
from evaluators.failures import BATCH_DEADLINE, failure_of
from evaluators.images.scoring import evaluate_in_image
from evaluators.script import MOST_NUMBERS, OTHER, ScriptOutput, read_notes, read_outcome
from evaluators.session import EndReason, Session, SessionEndedError
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ProcessRole
from evaluators.tiers.supervisor import longest_answer
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.data_files import content_of
from speciate.domain.stage import CascadeStage
from speciate.ports.reporting import report_progress


def evaluate_in_process(batch: EvaluationBatch) -> list[Evaluation]:
    if batch.image is not None:
        return evaluate_in_image(batch)
    return batch.evaluate_each(partial(_evaluate, batch))


def _evaluate(batch: EvaluationBatch, program: str, seed: int) -> Evaluation:
    text = content_of(program.encode("utf-8", "surrogatepass"))  # which is no URL
    files = {**batch.problem.data_files, batch.problem.main_file: text}
    with (
        batch.sandbox.folders.opened(files, once=True) as folder,
        ProcessStarter(batch.sandbox, batch.needs(ProcessRole.IN_PROCESS, folder), 1) as starter,
    ):
        return _InProcessRun(batch, starter, program, seed).evaluation()


class _InProcessRun:
    def __init__(self, batch: EvaluationBatch, starter: ProcessStarter, program: str, seed: int) -> None:
        self._batch, self._program, self._seed = batch, program, seed
        self._findings = ScriptOutput()
        limits = batch.problem.limits
        frame_bytes = longest_answer(ProcessRole.IN_PROCESS, limits)
        self._session = Session(starter.take(), frame_bytes=frame_bytes, log_bytes=limits.log_bytes, heard=_report_line)

    def evaluation(self) -> Evaluation:
        started = time.monotonic()
        limits = self._batch.problem.limits
        self._allowance = self._session.allow(limits.wall_s, self._batch.deadline, math.ceil(limits.cpu_s))
        try:
            score = self._score()
        finally:
            wall_s = time.monotonic() - started
            usage = self._session.end()
        self._findings.log += "".join(self._session.logs().values())
        tier, memory_bytes = self._batch.sandbox.name, usage.memory_bytes
        evaluation = replace(score, tier=tier, wall_s=wall_s, cpu_s=usage.cpu_s, memory_bytes=memory_bytes)
        return self._findings.added_to(self._batch.problem, evaluation)

    def _score(self) -> Evaluation:
        problem = self._batch.problem
        functions = [step.function for step in problem.cascade]
        first = {"script": problem.evaluator, "functions": functions, "records": problem.space.records}
        first["named"] = problem.space.names
        self._session.post(first | {"seed": self._seed, "program": problem.main_file})
        match self._receive():
            case {"ready": True}:
                return run_cascade(problem, self._measure, self._program)
            case {"raised": str(detail)}:
                return Evaluation(failure=Failure(FailureKind.INVALID_OUTPUT, "evaluator_raised", sanitize(detail)))
            case Failure() as failure:
                return Evaluation(failure=failure)
            case _:
                return Evaluation(failure=self._died(SessionEndedError(EndReason.BROKEN, "no verdict")))

    def _measure(self, step: CascadeStage) -> StageRewards | Failure:
        self._session.post({"function": step.function})
        message = self._receive()
        if isinstance(message, Failure):
            return message
        match message:
            case {"rewards": dict(others)}:
                names = [objective.name for objective in step.objectives]
                rewards = {name: others.pop(name) for name in names if name in others}
                texts = [[name, value] for name, value in others.items() if isinstance(value, str)]
                plain = {name: str(value)[:4000] for name, value in others.items() if not isinstance(value, str)}
                numbers = "\n".join(f"{name} = {value}" for name, value in plain.items())
                if numbers:
                    self._findings.notes[OTHER] = sanitize(numbers, MOST_NUMBERS)
                sent = message.get("notes")
                message |= {"rewards": rewards, "notes": [*(sent if isinstance(sent, list) else []), *texts]}
        outcome = read_outcome(step.objectives, message)
        if outcome is None:
            return self._died(SessionEndedError(EndReason.BROKEN, "no verdict"))
        self._findings.notes |= read_notes(self._batch.problem, message, step.objectives)
        return outcome

    def _receive(self) -> Message | Failure:
        try:
            return self._session.receive(self._allowance)
        except SessionEndedError as ended:
            return self._died(ended)

    def _died(self, ended: SessionEndedError) -> Failure:
        late = self._batch.expired
        failure = failure_of(ended, self._session.end(), self._batch.problem.limits)
        return BATCH_DEADLINE if late else failure


def _report_line(printed: bytes) -> None:
    """Report the last line of an output as progress: evaluators of other systems know no other way."""
    # Bars of progress overwrite their line.
    lines = printed[-4 * PROGRESS_CHARS :].decode("utf-8", "replace").replace("\r", "\n").split("\n")
    if line := next((line for line in reversed(lines) if line.strip()), ""):
        report_progress(sanitize(line.strip(), PROGRESS_CHARS), asked=False)
