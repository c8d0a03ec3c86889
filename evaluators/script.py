"""Run the author's script in its own contained process, which serves a batch and restarts after it dies."""

import re
from collections.abc import Callable, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.cascade import StageRewards
from evaluators.channel import Message
from evaluators.contained.wire import LABEL_CHARS, MAX_NOTES, PROGRESS_CHARS
from evaluators.failures import BATCH_DEADLINE, failure_of
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.session import EndReason, Session, SessionEndedError, TimeAllowance, TimeLeft
from evaluators.shared_clock import SharedClock
from evaluators.text import sanitize
from evaluators.tiers.sandbox import ProcessRole
from evaluators.tiers.supervisor import longest_answer
from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, UNMEASURED, Evaluation, Failure, FailureKind
from speciate.domain.data_files import check_data_files
from speciate.domain.objective import Objective
from speciate.domain.problem import OUTPUT, Problem, ProblemKind
from speciate.domain.reward import InvalidRewardsError, RewardSpace
from speciate.domain.stage import CascadeStage
from speciate.domain.values import FILE_PATH
from speciate.ports.reporting import report_progress
from speciate.runs.silent_failure import scores_nothing

OTHER = "other metrics"
"""Label of the note with numbers that are no objectives."""
MOST_NUMBERS = 1 << 16
"""Characters of the note ``OTHER``: every objective of a problem has a line there before it is declared."""

RAISED = "evaluator_raised"
"""Reason of a failure by an exception of the script."""

_KINDS = frozenset(kind.value for kind in FailureKind)


class ScriptFailedError(Exception):
    """The script returned no result; ``failure`` is the cause and ``log`` the script's output, for the author."""

    def __init__(self, failure: Failure, log: str = "") -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.log = log


class Script:
    """Run the functions of the problem's script, one program at a time."""

    def __init__(self, batch: EvaluationBatch) -> None:
        self._batch = batch
        self.clock = SharedClock()
        self._opened = ExitStack()
        self._session: Session | None = None
        self._unloadable: ScriptFailedError | None = None
        self._limit_s = 0.0  # last time limit, for failure messages

    def measure(
        self,
        step: CascadeStage,
        program: str,
        seed: int,
        listen: Callable[[], Message],
        findings: "ScriptOutput",
        excuses: Set[str] = frozenset(),
        candidate: RestartingCandidate | None = None,
    ) -> StageRewards | Failure:
        """Return the rewards or the failure that a stage's function reports for a program.

        ``listen`` handles the script's other messages and returns its verdict, or raises ``ScriptFailedError``; only
        then ``excuses`` are read (``read_outcome``). ``candidate`` gives the script its channel for direct calls.
        """
        try:
            self._begin(step, program, seed, candidate)
            message = listen()
            outcome = read_outcome(step.objectives, message, excuses)
            if outcome is None:
                raise self._protocol_error("the script sent a message that is not a verdict")
            findings.notes |= read_notes(self._batch.problem, message, step.objectives)
            findings.log += self._log()
            self._end_others()
        except ScriptFailedError as error:
            findings.log += error.log
            return error.failure
        finally:
            if candidate is not None:
                candidate.release_channel(self.clock.read().candidate_s)
        return outcome

    def reply(self, message: Message) -> None:
        if self._session is not None:
            self._session.post(message)

    def allow(self, limit_s: float) -> TimeAllowance:
        self._limit_s = limit_s
        limits = self._batch.problem.limits
        return self._running().allow(limit_s, self._batch.deadline, max(limits.cpu_s, limits.cores * limit_s))

    def receive(self, allowance: TimeLeft) -> Message:
        """Return the script's next message; after a ``ScriptFailedError`` the script restarts for the next program."""
        session = self._running()
        try:
            while True:
                match message := session.receive(allowance):
                    case {"progress": str(text)} if len(message) == 1:
                        report_progress(sanitize(text, PROGRESS_CHARS))
                    case _:
                        return message
        except SessionEndedError as ended:
            raise self._end_session(ended) from None

    def _running(self) -> Session:
        if self._session is None:
            raise ScriptFailedError(Failure(FailureKind.CRASHED, "evaluator_exited"))
        return self._session

    def _begin(self, step: CascadeStage, program: str, seed: int, candidate: RestartingCandidate | None) -> None:
        """Send the script a program, with the candidate's channel; load the script first if it is not running."""
        if self._unloadable is not None:
            raise self._unloadable
        if self._session is None:
            self._load()
        knows = candidate is not None and candidate.knows_held_out
        task = {"program": program, "seed": seed, "function": step.function, "knows_held_out": knows}
        began_ns = self.clock.start()
        session = self._running()
        if candidate is not None and (channel := candidate.acquire_channel(session.drain_beside)) is not None:
            fd, frame_bytes = channel
            direct = {"began_ns": began_ns, "frame_bytes": frame_bytes}
            if session.post_with(task | {"direct": direct}, [fd, self.clock.fd]):
                return
            candidate.release_channel(0.0)
        self.reply(task)

    def _protocol_error(self, detail: str) -> ScriptFailedError:
        return self._end_session(SessionEndedError(EndReason.BROKEN, detail))

    def _end_others(self) -> None:
        """Stop a script that leaves processes running, with them: they must not outlive their evaluation."""
        if self._session is not None and self._session.has_others:
            self._session.end()
            self._session = None

    def _log(self) -> str:
        return "" if self._session is None else "".join(self._session.logs().values())

    def _load(self) -> None:
        problem = self._batch.problem
        self._session = Session(
            self._starter.take(),
            frame_bytes=longest_answer(ProcessRole.AUTHOR, problem.limits),
            log_bytes=problem.limits.log_bytes,
        )
        functions = [step.function for step in problem.cascade if not step.external]
        calls = problem.kind is not ProblemKind.DATA  # texts are data and define no functions
        first = {"script": problem.evaluator, "functions": functions, "records": problem.space.records}
        held_out = any(objective.held_out for objective in problem.objectives)
        self.reply(first | {"files": problem.files, "calls": calls, "held_out": held_out})
        try:
            self._expect_ready(self.receive(self.allow(self._batch.author_s)))
        except ScriptFailedError as error:
            if error.failure is not BATCH_DEADLINE:
                self._unloadable = error  # loading fails for every program, so keep the error
            raise

    def _expect_ready(self, message: Message) -> None:
        match message:
            case {"ready": True}:
                return
            case {"raised": str(detail)}:
                raise ScriptFailedError(_raised(detail), self._log())
            case _:
                raise self._protocol_error("the script wrote to the channel")

    def _end_session(self, ended: SessionEndedError) -> ScriptFailedError:
        session, self._session = self._session, None
        if session is None:
            return ScriptFailedError(Failure(FailureKind.CRASHED, "evaluator_exited"))
        late = self._batch.expired and ended.ending is EndReason.LATE
        # The process's resource usage covers all programs that it has served, so no limit of one evaluation applies.
        usage = replace(session.end(), cpu_s=0.0)
        failure = failure_of(ended, usage, self._batch.problem.limits.model_copy(update={"wall_s": self._limit_s}))
        named = Failure(failure.kind, f"evaluator_{failure.reason}", f"the evaluator's process: {failure.detail}")
        return ScriptFailedError(BATCH_DEADLINE if late else named, "".join(session.logs().values()))

    def __enter__(self) -> Self:
        sandbox, problem = self._batch.sandbox, self._batch.problem
        folder = self._opened.enter_context(sandbox.folders.opened(_files(problem), once=problem.carry is not None))
        needs = self._batch.needs(ProcessRole.AUTHOR, folder)
        self._starter = self._opened.enter_context(ProcessStarter(sandbox, needs, 1))
        self._starter.warm()  # start in parallel with the first candidate
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.close()
        if self._session is not None:
            self._session.end()
            self._session = None
        self._opened.close()


def _files(problem: Problem) -> dict[str, str]:
    """Return the script's files beside the data files; none if no file has the name of one."""
    files = {name: text for name, text in problem.files.items() if re.fullmatch(FILE_PATH, name)}
    try:
        check_data_files(files | problem.data_files)
    except ValueError:  # a text that is no data, or the name of a folder: the script has its files as texts only
        return {}
    return files and files | problem.data_files


@dataclass(slots=True)
class ScriptOutput:
    """Notes, log and last failed call of a script over all stages; the script may hide that a call failed."""

    notes: dict[str, str] = field(default_factory=dict)
    log: str = ""
    failed_call: str = ""

    def added_to(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with the texts to store; what explains a failure only with one.

        Evaluators of other systems catch exceptions, print them and answer 0: with kind ``in_process``, rewards that
        are all worst count as a failure. Other scripts may print what policies must not see.
        """
        nothing = scores_nothing(problem, evaluation)
        failed = evaluation.failure is not None or (nothing and problem.kind is ProblemKind.IN_PROCESS)
        texts = {"failed call": self.failed_call if nothing else "", "evaluator_log": self.log if failed else ""}
        explanations = {label: text for label, text in texts.items() if text}
        return replace(evaluation, artifacts={**self.notes, **explanations, **evaluation.artifacts})


def read_outcome(
    objectives: tuple[Objective, ...], message: Message, excuses: Set[str] = frozenset()
) -> StageRewards | Failure | None:
    """Return the rewards or the failure in a script's message, or None if the message is not a verdict.

    The service repeats evaluations that fail without the program's fault, so a script may report such a reason only if
    it is among the ``excuses``, which the worker observed.
    """
    match message:
        case {"rewards": dict(rewards)}:
            space = RewardSpace(objectives)
            try:
                return space.measured({name: _number(value) for name, value in rewards.items()})[0]
            except InvalidRewardsError as error:
                return Failure(FailureKind.INVALID_OUTPUT, "invalid_rewards", sanitize(str(error)))
        case {"failed": {"kind": str(kind), "reason": str(reason), "detail": str(detail)}} if kind in _KINDS:
            reason = sanitize(reason, 80)
            false = reason in NOT_THE_PROGRAMS_FAULT and reason not in excuses
            return Failure(FailureKind(kind), "evaluator_failed" if false else reason, sanitize(detail))
        case {"raised": str(detail), "out_of_memory": True}:
            return Failure(FailureKind.OUT_OF_MEMORY, RAISED, sanitize(detail))
        case {"raised": str(detail)}:
            return _raised(detail)
        case _:
            return None


def read_notes(problem: Problem, message: Message, objectives: tuple[Objective, ...]) -> dict[str, str]:
    """Return the notes of a script, limited together to the length of a log, and the records without a number."""
    rewards = message.get("rewards")
    unmeasured = RewardSpace(objectives).unmeasured(rewards) if isinstance(rewards, dict) else []
    notes = {UNMEASURED: ", ".join(unmeasured)} if unmeasured else {}
    space_left = problem.limits.log_bytes
    sent = message.get("notes")
    for note in sent[:MAX_NOTES] if isinstance(sent, list) else []:
        match note:
            case [str(label), str(text)]:
                if label == OUTPUT and problem.carry is not None and len(text) > space_left:
                    # Part of an output is no start for others.
                    label = "output left out"
                    text = f"it has at least {len(text)} characters, limits.log_bytes leaves {space_left}"
                note_text = sanitize(text[:space_left], space_left)
                space_left -= len(note_text)
                label = sanitize(label, LABEL_CHARS)
                separator = ", " if label == UNMEASURED else "\n"
                notes[label] = f"{notes[label]}{separator}{note_text}" if label in notes else note_text
            case _:
                continue
    return notes


def _raised(detail: str) -> Failure:
    return Failure(FailureKind.INVALID_OUTPUT, RAISED, sanitize(detail))


def _number(value: object) -> object:
    # The script's process sends non-finite numbers as text, so that the error can quote them.
    return float(value) if value in ("nan", "inf", "-inf") and isinstance(value, str) else value
