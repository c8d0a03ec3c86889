"""What a user wants evolved, and the run that it amounts to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from speciate.client.arguments import run_spec
from speciate.domain.candidate import Evaluation
from speciate.domain.capabilities import evaluator_command
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.policy import MUTATOR
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec, RunState
from speciate.local.engine import local_client
from speciate.local.sandbox import LocalSandbox
from speciate.policies.inline import agent_policy, register
from speciate.search.strategies import build_strategy
from speciate.settings import Settings

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle
    from speciate.compat.conversion import Converted
    from speciate.compat.measuring import Score
    from speciate.evolution.functions import ScoreFunction
    from speciate.schema.estimates import RunEstimate
    from speciate.schema.problems import ProblemVersion

DEFAULT_EVALUATIONS: Final = 100
_UNENDED: Final = (RunState.PAUSED, RunState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem, policies and a budget."""

    program: Path | str | None
    evaluator: Path | str | None = None
    function: ScoreFunction | None = None
    """Scores candidates in place of an evaluator."""
    problem: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[str] = ()
    agents: Sequence[str] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """``max_tokens`` and ``temperature`` of the models; None for what suits their provider."""
    policies: str | Mapping[str, float] | None = None
    """Registered policies; without any policy, programs change at random."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``RunSpec``, among them ``budget``."""
    announce: Callable[[float], None] | None = None
    """Receives the wall limit in seconds before an evaluator scores the seed program."""
    confirm: Callable[[RunEstimate], None] | None = None
    """Receives an estimate before a new run starts, which then keeps it; raises if none is to start."""
    anew: bool = False
    """Start a new run even if one with the same inputs is paused."""

    def check(self) -> None:
        if self.function is not None:
            self.function.check()


@dataclass(frozen=True, slots=True)
class Evolution:
    """A run in progress."""

    client: Client
    run: RunHandle
    problem: Converted
    continues: bool
    """True if the run was paused before."""


@contextmanager
def evolving(
    task: Task, settings: Settings, *, project: str | None = None, dashboard: bool = False
) -> Iterator[Evolution]:
    """Score the seed program and start the run of a task, or continue it; ``local_client`` says where it is executed.

    Mistakes that show without a score are told before the evaluator, which may take minutes, starts.
    """
    task = _configured(task)
    fields = dict(task.spec)
    budget = _set(fields.pop("budget", {}))
    spec = run_spec(budget or {"evaluations": DEFAULT_EVALUATIONS}, **fields)
    build_strategy(spec.strategy, spec.strategy_options)
    slug = _slug_of(task)
    if task.agents:  # they run here only if this process executes the run
        commands = [agent_policy(command).options["command"] for command in task.agents]
        settings = settings.model_copy(update={"agent_commands": (*settings.agent_commands, *commands)})
    with (
        ThreadPoolExecutor(1) as pool,
        closing(LocalSandbox(settings)) as sandbox,
        local_client(settings, project=project, dashboard=dashboard, sandbox=sandbox) as client,
    ):
        weights = _registered(client, task, spec)
        begun = None if task.anew else _begun(client, task, slug, spec, weights)
        problem = begun or pool.submit(_problem_of, task, _scoring(task, sandbox)).result()
        if task.function is None:
            check_evaluated(client, problem.problem)
        run, continues = _run_of(client, problem, task, spec, weights)
        evolution = Evolution(client, run, problem, continues)
        if task.function is None:
            yield evolution
            return
        with task.function.serving(client, run, problem.problem, sandbox):
            yield evolution


def check_evaluated(client: Client, problem: Problem) -> None:
    """Refuse a problem with external evaluation if no other command can lease candidates from the client's service."""
    if client.in_process and problem.external_stage is not None:
        raise InvalidInputError(
            f"{problem.slug} has external evaluation, which needs a service.",
            remedy=f"Start `speciate up` elsewhere, and `{evaluator_command(problem.slug, problem.capabilities)}`.",
        )


def _configured(task: Task) -> Task:
    """Return a task with the settings of OpenEvolve's configuration for what it leaves open."""
    from speciate.compat.settings import settings_in

    config = Path(task.problem.get("config") or "")
    if not config.is_file():  # without any, or refused when the problem is read
        return task
    settings, _ = settings_in(config.parent, config)
    budget = {"evaluations": settings.max_iterations} | _set(task.spec.get("budget", {}))
    sampling = settings.llm.model_dump(include={"temperature", "max_tokens"}) | _set(task.sampling)
    return replace(task, spec={"seed": settings.random_seed} | _set(task.spec) | {"budget": budget}, sampling=sampling)


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _problem_of(task: Task, score: Score) -> Converted:
    if task.function is not None:
        return task.function.problem(task.program, score, **task.problem)
    from speciate.compat.inline import inline_problem

    return inline_problem(task.program, task.evaluator, score=score, **task.problem)


def _scoring(task: Task, sandbox: LocalSandbox) -> Score:
    if task.function is not None:
        return task.function.scoring(sandbox)

    def score(problem: Problem, seeds: Sequence[int]) -> list[Evaluation]:
        if task.announce is not None and 0 in seeds:
            task.announce(problem.limits.wall_s)
        return sandbox.evaluate(problem, [problem.seed_program] * len(seeds), seeds=seeds)

    return score


class _UnscoredError(Exception):
    pass


def _slug_of(task: Task) -> str:
    """Return the name of a task's problem, which its files tell without an evaluation."""

    def score(problem: Problem, _: Sequence[int]) -> list[Evaluation]:
        raise _UnscoredError(problem.slug)

    try:
        return _problem_of(task, score).problem.slug
    except _UnscoredError as stopped_by:
        return str(stopped_by)


def _registered(client: Client, task: Task, spec: RunSpec) -> dict[str, float]:
    """Register models and agents, and return the weights of all policies by id."""
    weights = register(
        client.policies, task.models, task.agents, **_set({**task.sampling, "budget": spec.budget.tokens})
    )
    if isinstance(task.policies, str):
        weights[task.policies] = 1.0
    weights |= {} if task.policies is None or isinstance(task.policies, str) else task.policies
    weights = weights or {MUTATOR: 1.0}
    return {str(client.policies.get(name).id): weight for name, weight in weights.items()}


def _begun(client: Client, task: Task, slug: str, spec: RunSpec, ids: Mapping[str, float]) -> Converted | None:
    """Return the problem of a run that began with the same inputs, with what its seed program scored there."""
    from speciate.compat.conversion import Converted
    from speciate.compat.inline import same_inputs

    with suppress(NotFoundError, InvalidInputError):  # scoring says what is wrong
        version = client.problems.get(slug)
        for run in (run for state in _UNENDED for run in _alike(client, version, spec, ids, state)):
            seed = (run.candidate(1).rewards if run.record.evaluated else None) or {}
            listed = "\n".join(f"{name} = {value!r}" for name, value in seed.items())
            known = [Evaluation(rewards=(0.0,), artifacts={"other metrics": listed})]
            if same_inputs(version.definition, _problem_of(task, lambda *call: known * len(call[1])).problem):  # noqa: B023
                return Converted(version.definition, seed=seed)
    return None


def _run_of(
    client: Client, problem: Converted, task: Task, spec: RunSpec, ids: Mapping[str, float]
) -> tuple[RunHandle, bool]:
    version = _same_version(client, problem) or client.problems.add(problem.problem)
    if not task.anew:
        for paused in _alike(client, version, spec, ids, RunState.PAUSED):
            with suppress(ConflictError):  # another process has continued it
                paused.resume()
                return paused, True
        for running in _alike(client, version, spec, ids, RunState.RUNNING):
            raise ConflictError(
                f"a run with these inputs is in progress: {running.id}.",
                remedy=f"Watch it with `speciate runs watch {running.id}`. After a stop of its service,"
                " `speciate up` goes on with it. --new (new=True) starts another one.",
            )
    fields = {name: getattr(spec, name) for name in RunSpec.model_fields}
    policy = ids if len(ids) > 1 else next(iter(ids))
    if task.confirm is not None:
        task.confirm(client.runs.estimate(version.id, policy, **fields))
        fields["estimate"] = True
    return client.runs.create(version.id, policy, **fields), False


def _alike(
    client: Client, version: ProblemVersion, spec: RunSpec, weights: Mapping[str, float], state: RunState
) -> Iterator[RunHandle]:
    """Yield the runs in a state with the same inputs; ``weights`` are those of the policies by id."""
    for run in client.runs.list(problem=str(version.id), state=state):
        policies = {str(each.policy_id): each.weight for each in run.record.ensembles}
        if run.record.spec == spec and (policies or {str(run.record.policy_id): 1.0}) == weights:
            yield run


def _same_version(client: Client, problem: Converted) -> ProblemVersion | None:
    """Return the newest version of a problem that was not declared, if only the noise of its seed program differs."""
    from speciate.compat.inline import same_inputs

    if not problem.seed:
        return None
    try:
        newest = client.problems.get(problem.problem.slug)
    except NotFoundError:
        return None
    return newest if same_inputs(newest.definition, problem.problem) else None
