"""What a user wants evolved, and the run that it amounts to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
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
from speciate.runs.checks import check_spending
from speciate.search.strategies import strategy_of
from speciate.settings import Settings

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle
    from speciate.compat.conversion import Converted
    from speciate.compat.measuring import Score
    from speciate.evolution.functions import ScoreFunction
    from speciate.schema.estimates import RunEstimate
    from speciate.schema.problems import ProblemVersion

DEFAULT_EVALUATIONS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
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
    check_place: Callable[[], object] = lambda: None
    """Called before a new run starts; raises if there is no place for its answer."""
    anew: bool = False
    """Start a new run even if one with the same inputs is paused."""
    invocation: str = "speciate"
    """How commands begin that an error names."""


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
    """Start the run of a task with a score of the seed program, or continue it, where ``local_client`` says."""
    from speciate.evolution.functions import within

    task = _configured(task)
    fields = dict(task.spec)
    budget = _set(fields.pop("budget", {}))
    spec = run_spec(budget or {"evaluations": DEFAULT_EVALUATIONS}, **fields)
    strategy_of(spec)
    read = _problem_of(task, None).problem
    if task.agents:  # they run here only if this process executes the run
        commands = [agent_policy(command).options["command"] for command in task.agents]
        settings = settings.model_copy(update={"agent_commands": (*settings.agent_commands, *commands)})
    with (
        closing(LocalSandbox(settings)) as sandbox,
        local_client(settings, project=project, dashboard=dashboard, sandbox=sandbox) as client,
    ):
        # Whatever is wrong without a score is told before the evaluator starts, which may take minutes.
        ids = _registered(client, task, spec)
        if task.function is None:
            check_evaluated(client, read)
        if (evolution := _begun(client, task, read.slug, spec, ids)) is None:
            # In a thread, which Ctrl-C need not wait for.
            problem = within(math.inf, Event(), partial(_problem_of, task, partial(_score, task, sandbox)))
            evolution = _started(client, problem, task, spec, ids)
        arguments = (client, evolution.run, evolution.problem.problem, sandbox)
        with nullcontext() if task.function is None else task.function.serving(*arguments):
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


def _problem_of(task: Task, score: Score | None) -> Converted:
    if task.function is not None:
        return task.function.problem(task.program, score, **task.problem)
    from speciate.compat.inline import inline_problem

    return inline_problem(task.program, task.evaluator, score=score, **task.problem)


def _score(task: Task, sandbox: LocalSandbox, problem: Problem, seeds: Sequence[int]) -> list[Evaluation]:
    if task.function is not None:
        return [task.function.score_seed(problem, seed, sandbox) for seed in seeds]
    if task.announce is not None and 0 in seeds:
        task.announce(problem.limits.wall_s)
    return sandbox.evaluate(problem, [problem.seed_program] * len(seeds), seeds=seeds)


def _registered(client: Client, task: Task, spec: RunSpec) -> dict[str, float]:
    """Register models and agents, and return the weights of all policies by id."""
    named = {task.policies: 1.0} if isinstance(task.policies, str) else task.policies or {}
    sampling = _set({**task.sampling, "budget": spec.budget.tokens})
    weights = {**register(client.policies, task.models, task.agents, **sampling), **named} or {MUTATOR: 1.0}
    versions = {name: client.policies.get(name) for name in weights}
    check_spending([*versions.values()], spec.budget)
    return {str(versions[name].id): weight for name, weight in weights.items()}


def _begun(client: Client, task: Task, slug: str, spec: RunSpec, ids: Mapping[str, float]) -> Evolution | None:
    """Continue the paused run of the same inputs, if there is one; ``ConflictError`` if one is in progress."""
    from speciate.compat.conversion import Converted

    for state in () if task.anew else (RunState.PAUSED, RunState.RUNNING):
        # Of every version of the problem: another one may be the newest now.
        for run in client.runs.list(state=state, group="own"):
            policies = {str(each.policy_id): each.weight for each in run.record.ensembles}
            policies = policies or {str(run.record.policy_id): 1.0}
            if (run.record.problem, run.record.spec, policies) != (slug, spec, ids):
                continue
            definition = run.problem().definition
            seed = (run.candidate(1).rewards if run.record.evaluated else None) or {}
            if not _is_of(task, definition, seed):
                continue
            if state is RunState.RUNNING:
                remedy = f"Watch it with `{task.invocation} runs watch {run.id}`. After a stop of its service,"
                remedy += f" `{task.invocation} up` goes on with it. --new (new=True) starts another one."
                raise ConflictError(f"a run with these inputs is in progress: {run.id}.", remedy=remedy)
            with suppress(ConflictError):  # another process has continued it
                run.resume()
                return Evolution(client, run, Converted(definition, seed=seed), continues=True)
    return None


def _is_of(task: Task, problem: Problem, seed: Mapping[str, float]) -> bool:
    """Return True if a task has a problem's inputs; where its seed program's scores are not known, names suffice."""
    from speciate.compat.inline import same_inputs
    from speciate.compat.rewards import RATED

    scores = dict.fromkeys(problem.space.names, 1.0) | dict(seed)
    listed = "\n".join(f"{name} = {value!r}" for name, value in scores.items())
    rated = ", ".join(objective.name for objective in problem.space.selected)
    known = Evaluation(rewards=(0.0,), artifacts={"other metrics": listed, RATED: rated})
    try:
        return same_inputs(problem, _problem_of(task, lambda _, seeds: [known] * len(seeds)).problem)
    except InvalidInputError:  # other goals
        return False


def _started(client: Client, problem: Converted, task: Task, spec: RunSpec, ids: Mapping[str, float]) -> Evolution:
    version = _version_of(client, problem)
    begun = _begun(client, task, problem.problem.slug, spec, ids)
    if begun is not None:  # while the seed program was scored
        return begun
    task.check_place()
    fields = {name: getattr(spec, name) for name in RunSpec.model_fields}
    policy = ids if len(ids) > 1 else next(iter(ids))
    if task.confirm is not None:
        task.confirm(client.runs.estimate(version.id, policy, **fields))
        fields["estimate"] = True
    return Evolution(client, client.runs.create(version.id, policy, **fields), problem, continues=False)


def _version_of(client: Client, problem: Converted) -> ProblemVersion:
    """Return the newest version of a problem if only the noise of its seed program differs, else add one."""
    from speciate.compat.inline import same_inputs

    if problem.seed:  # not declared
        with suppress(NotFoundError):
            newest = client.problems.get(problem.problem.slug)
            if same_inputs(newest.definition, problem.problem):
                return newest
    return client.problems.add(problem.problem)
