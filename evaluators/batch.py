"""A batch of programs to evaluate, and the processes started ahead of time for it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluators.build_cache import BuildCache
from evaluators.contained.seccomp import SyscallPolicy
from evaluators.failures import BATCH_DEADLINE
from evaluators.session import Session
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, ProcessSupervisor, Sandbox, SandboxedProcess
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.limits import Limits
from speciate.domain.problem import Problem, ProblemKind
from speciate.ports.interruption import interrupted
from speciate.ports.reporting import report_evaluation

_START_S = 30.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class EvaluationBatch:
    """Programs to score against one problem."""

    problem: Problem
    programs: tuple[str, ...]
    seeds: tuple[int, ...]
    sandbox: Sandbox
    """Where scripts run, and programs unless ``image`` is set."""
    deadline: float
    """Time by which the batch must end, on the clock of ``time.monotonic``; may be infinite."""
    author_grace_s: float
    """Seconds of an author's script beside twice the problem's wall limit."""
    folder: Path | None = None
    """Folder of the problem's data files."""
    site: Path | None = None
    """Folder of the problem's packages; None uses those of the worker."""
    builds: BuildCache | None = None
    surroundings: str = ""
    """Digest of what a build sees beside its source: tools with their versions, and data files."""
    image: Sandbox | None = None

    def evaluate_each(self, evaluate: Callable[[str, int], Evaluation]) -> list[Evaluation]:
        """Evaluate one program with its seed after another, reporting each that begins, until the deadline."""
        results = []
        for program, seed in zip(self.programs, self.seeds, strict=True):
            report_evaluation(program, seed)
            late = Evaluation(failure=BATCH_DEADLINE, tier=self.home.name)
            results.append(late if self.expired else evaluate(program, seed))
        return results

    @property
    def home(self) -> Sandbox:
        """Sandbox of programs; the author's script always runs in ``sandbox``."""
        return self.image or self.sandbox

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.deadline or interrupted()

    @property
    def author_s(self) -> float:
        """Time limit of an author's script, in seconds, without the time in which it waits for a candidate."""
        return self.problem.limits.script_s or self.author_grace_s + 2 * self.problem.limits.wall_s

    def needs(self, role: ProcessRole, folder: Path | None = None) -> ProcessSpec:
        limits = self.problem.limits
        if role is ProcessRole.CANDIDATE and (language := self.problem.language) is not None:
            built = language.build_bytes
            sizes = {"tmp_bytes": limits.tmp_bytes + built, "file_bytes": max(limits.file_bytes, built)}
            return self.commands(limits.model_copy(update=sizes))
        in_process = role is ProcessRole.IN_PROCESS
        is_script = in_process or (role is ProcessRole.AUTHOR and self.problem.kind is ProblemKind.EVALUATOR)
        syscall_policy = SyscallPolicy.SCRIPT if is_script else SyscallPolicy.THREADS
        # Libraries that compute with several threads start them when they are imported; threads do not survive a fork.
        preload = self.problem.preload if limits.cores == 1 else ()
        cpu_s = limits.cpu_s if in_process else 0.0
        return ProcessSpec(role, limits, preload, syscall_policy, folder or self.folder, self.site, cpu_s)

    def commands(self, limits: Limits) -> ProcessSpec:
        return ProcessSpec(
            ProcessRole.COMMAND, limits, ("subprocess",), SyscallPolicy.PROCESSES, self.folder, self.site
        )


class ProcessStarter(contextlib.AbstractContextManager["ProcessStarter"]):
    """Provide contained processes, starting the next one as soon as the current one has ended.

    A supervisor serves one process after another and ends with the batch, so that batches share no namespaces. If no
    supervisor can serve another process, later ones get supervisors of their own while the current one works.
    """

    def __init__(self, sandbox: Sandbox, needs: ProcessSpec, expected: int) -> None:
        self._sandbox, self._needs = sandbox, needs
        self._expected = expected
        self._spare: SandboxedProcess | None = None
        self._supervisors: list[ProcessSupervisor] = []
        self._overlapping = False

    def take(self) -> SandboxedProcess:
        """Return a process that is ready for its first message; raises ``EvaluatorUnavailableError``."""
        self._expected -= 1
        log = ""
        for _ in range(_ATTEMPTS):
            contained, self._spare = self._spare or self._start(), None
            problem = ""
            try:
                if contained.wait_ready(_START_S):
                    return contained
            except OSError as error:
                problem = str(error)
            # An earlier candidate may have killed the spare process. Only the failure of a fresh process is conclusive.
            log = _discard(contained) or problem
        raise EvaluatorUnavailableError(
            f"No contained process starts in tier {self._sandbox.name!r}: {log.strip()[-500:] or 'no output'}.",
            remedy="Check that the Python installation of the worker is complete and readable by its user.",
        )

    def warm(self) -> None:
        """Start the next process if another program is expected; ``take`` repeats and reports a failed start."""
        if self._expected > 0 and self._spare is None:
            with contextlib.suppress(EvaluatorUnavailableError):
                self._spare = self._start()

    def overlap(self) -> None:
        """Start the next process beside the current one if no supervisor is going to be free for it."""
        if self._overlapping:
            self.warm()

    def close(self) -> None:
        self._expected = 0
        if self._spare is not None:
            _discard(self._spare)
            self._spare = None
        for supervisor in self._supervisors:
            supervisor.close()
        self._supervisors.clear()

    def _ended(self) -> None:
        self._overlapping = not any(each.idle for each in self._supervisors)
        self.warm()

    def _start(self) -> SandboxedProcess:
        try:
            for _ in range(_ATTEMPTS - 1):
                with contextlib.suppress(ConnectionError):  # the supervisor or its zygote was killed
                    return self._start_once()
            return self._start_once()
        except OSError as error:
            raise EvaluatorUnavailableError(
                f"No process can be started for an evaluation: {error}.",
                remedy="Check the limits on processes and open files, and the space in the temporary directory.",
            ) from error

    def _start_once(self) -> SandboxedProcess:
        self._supervisors = [each for each in self._supervisors if not each.closed]
        supervisor = next((each for each in self._supervisors if each.idle), None)
        if supervisor is None:
            supervisor = self._sandbox.start(self._needs)
            self._supervisors.append(supervisor)
        try:
            return supervisor.start(self._ended)
        except OSError:
            supervisor.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _discard(contained: SandboxedProcess) -> str:
    session = Session(contained, frame_bytes=0, log_bytes=4096)
    session.end()
    return session.logs()["stderr"]
