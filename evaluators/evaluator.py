"""Evaluate programs against a problem; runs in the worker's process and is trusted.

Only the worker knows expected outputs and decides the result. Programs and scripts run in processes of a tier
(``evaluators.tiers``), which see code and inputs only.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.build_cache import BuildCache
from evaluators.cases import evaluate_cases
from evaluators.contained.tier_b import NAME as TIER_B
from evaluators.contained.unsafe import NAME as UNSAFE
from evaluators.data import evaluate_data
from evaluators.environments import EnvironmentStore
from evaluators.images.engine import engines, find_engine, require_engine
from evaluators.images.sandbox import ImageSandbox, ImageStore
from evaluators.in_process import evaluate_in_process
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.scripted import evaluate_scripted
from evaluators.tiers.pool import ZygotePool
from evaluators.tiers.sandbox import ProcessRole
from evaluators.toolchains import Toolchains
from speciate.domain.candidate import SANDBOX_LOST, Evaluation
from speciate.domain.capabilities import IMAGE_CAPABILITIES, TIER_REMEDY
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.values import digest_of
from speciate.settings import default_data_dir

EVALUATE_BY_KIND: dict[ProblemKind, Callable[[EvaluationBatch], list[Evaluation]]] = {
    ProblemKind.CASES: evaluate_cases,
    ProblemKind.EVALUATOR: evaluate_scripted,
    ProblemKind.DATA: evaluate_data,
    ProblemKind.IN_PROCESS: evaluate_in_process,
}
"""Evaluation function of each kind of problem."""


class SandboxEvaluator:
    """An ``EvaluatorClient``, thread- and fork-safe. Batches share only interpreters that never read their data."""

    def __init__(
        self,
        tier: str,
        *,
        author_grace_s: float = 10.0,
        environments: EnvironmentStore | None = None,
        toolchains: Toolchains | None = None,
        builds: BuildCache | None = None,
    ) -> None:
        """Choose a tier by its name in ``TIERS``.

        The default of ``environments`` is in the user's data directory, that of ``toolchains`` the system's. ``builds``
        is unused in tier ``unsafe``, in which candidates could write to it.
        """
        self._toolchains = toolchains or Toolchains()
        self._builds = None if tier == UNSAFE else builds
        self._sandbox = ZygotePool(tier, self._toolchains.folders)
        self._images = ImageStore()
        self._author_grace_s = author_grace_s
        self._environments = environments or EnvironmentStore(default_data_dir() / "environments")

    @property
    def tier(self) -> str:
        return self._sandbox.name

    @property
    def zygotes(self) -> list[int]:
        return self._sandbox.pids

    def capabilities(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those programs, of some names, with which it can build and run candidates."""
        names = {*names}
        engine = find_engine() if names & IMAGE_CAPABILITIES else None
        available = set() if engine is None else names & engine.capabilities
        if self.tier != TIER_B:  # no process of that tier starts another
            available |= {name for name in names - IMAGE_CAPABILITIES if self._toolchains.works(name)}
        return tuple(sorted(available))

    def can_evaluate(self, problem: Problem) -> bool:
        return problem.worker_capabilities <= {*self.capabilities(problem.worker_capabilities)}

    def sweep_containers(self) -> int:
        """Remove containers of this machine that killed workers left; return how many."""
        return sum(engine.sweep() for engine in engines() if not engine.problem)

    def languages(self) -> dict[str, str]:
        if self.tier == TIER_B:
            return {}
        return {language.name: language.version for language in self._toolchains.languages() if not language.problem}

    def evaluate(
        self,
        problem: Problem,
        programs: Sequence[str],
        *,
        seeds: Sequence[int],
        timeout_s: float | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> list[Evaluation]:
        """Score programs (or data documents) against a problem; return one result per program, in order.

        Programs not scored within ``timeout_s`` seconds fail with ``timeout``, reason ``batch_deadline``; the build of
        an environment does not count, of which ``report`` receives the lines of progress. Raises
        ``EvaluatorUnavailableError``, which is no candidate's failure, if no process starts, packages cannot be
        installed, or this machine lacks the problem's language.
        """
        if len(seeds) != len(programs):
            raise ValueError(f"{len(programs)} programs with {len(seeds)} seeds: expected one seed per program")
        if problem.cascade[0].external:
            raise ValueError(f"problem {problem.slug!r} has no sandboxed evaluation")
        if not programs:
            return []
        with self._environments.use(problem.requirements, report) as environment:
            deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
            batch = EvaluationBatch(
                problem, tuple(programs), tuple(seeds), self._sandbox, deadline, self._author_grace_s
            )
            batch = self._prepared(batch)
            with self._sandbox.folders.opened(problem.data_files, once=problem.carry is not None) as folder:
                batch = replace(batch, folder=folder, site=None if environment is None else environment.site)
                try:
                    results = _repeat_lost(batch, EVALUATE_BY_KIND[problem.kind](batch))
                except EvaluatorUnavailableError:
                    if problem.image is not None:
                        self._images.forget(problem.image)
                    raise
            if environment is None:
                return results
            return [replace(result, environment=environment.digest) for result in results]

    @contextlib.contextmanager
    def candidate(self, problem: Problem, program: str, seed: int) -> Iterator[RestartingCandidate]:
        """Serve calls of this process into a program, within the limits of a problem; raises as ``evaluate``."""
        with self._environments.use(problem.requirements, lambda _: None) as environment:
            batch = EvaluationBatch(problem, (program,), (seed,), self._sandbox, math.inf, self._author_grace_s)
            batch = replace(self._prepared(batch), site=None if environment is None else environment.site)
            with (
                ProcessStarter(batch.home, batch.needs(ProcessRole.CANDIDATE), 1) as starter,
                RestartingCandidate(batch, starter, program, seed) as candidate,
            ):
                yield candidate

    def _prepared(self, batch: EvaluationBatch) -> EvaluationBatch:
        """Return the batch with what builds and runs its programs, if they are not Python; raises as ``evaluate``."""
        problem = batch.problem
        if problem.image is not None:
            engine = require_engine(problem.worker_capabilities)
            self._images.require(engine, problem.image)
            image = ImageSandbox(engine, problem.image, problem.writable, self._sandbox.folders)
            surroundings = digest_of([problem.image, problem.data_files])
            return replace(batch, builds=self._builds, surroundings=surroundings, image=image)
        if problem.language is None:
            return batch
        if self.tier == TIER_B:
            raise EvaluatorUnavailableError(
                f"Programs in {problem.language.name} need sandbox tier A, and this is tier B.",
                remedy=f"{TIER_REMEDY}; `speciate doctor` says what else tier A needs.",
            )
        self._toolchains.require(problem.language)
        surroundings = digest_of([self._toolchains.identity(problem.language), problem.data_files])
        return replace(batch, builds=self._builds, surroundings=surroundings)

    def close(self) -> None:
        self._sandbox.close()

    def leave(self) -> None:
        """Remove the files that candidates read, before this process exits without stopping its zygotes."""
        self._sandbox.folders.leave()


def _repeat_lost(batch: EvaluationBatch, results: list[Evaluation]) -> list[Evaluation]:
    """Repeat once each evaluation that lost its sandbox, because the program did not cause that failure."""
    lost = [i for i, result in enumerate(results) if result.failure and result.failure.reason in SANDBOX_LOST]
    if not lost:
        return results
    again = replace(batch, programs=tuple(batch.programs[i] for i in lost), seeds=tuple(batch.seeds[i] for i in lost))
    repeated = dict(zip(lost, EVALUATE_BY_KIND[batch.problem.kind](again), strict=True))
    return [repeated.get(i, result) for i, result in enumerate(results)]
