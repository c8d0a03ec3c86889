"""``speciate.evolve``, ``speciate.evolve_async`` and ``speciate.estimate``."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.run import RunSpec, RunState
from speciate.domain.suggestions import did_you_mean
from speciate.evolution.progress import Show, showing
from speciate.evolution.result import Result, result_of
from speciate.evolution.task import Evolution, Task, evolving
from speciate.schema.estimates import RunEstimate
from speciate.settings import load_settings

_REFRESH_S: Final = 0.25
_CANCELLED: Final = ContextVar("cancelled", default=threading.Event())  # noqa: B039 - this one is never set

_EVALUATORS: Final = "Pass evaluator=, a function, or a file with evaluate(program_path)."
_INSTEAD: Final = {
    **dict.fromkeys(("wall_s", "memory_mb", "limit"), "Set limits in config=, a config.yaml, or in a problem.toml."),
    **dict.fromkeys(("anyway", "include", "requirement"), "The command has it: pass a directory with problem.toml."),
    **dict.fromkeys(("out", "no_out"), "result.save(DIRECTORY) writes the best program."),
    "budget": "Limits are evaluations=, tokens=, seconds= and dollars=.",
    **dict.fromkeys(("engine", "engine_options", "learning"), "`speciate run` and the client start such runs."),
    "policy": "Name models with model=, and agents with agent=.",
    "target": "The argument is targets=.",
}

Evaluator = Path | str | Callable[[Any], Any]
Names = str | Sequence[str] | None


def evolve(
    program: Path | str | None = None,
    evaluator: Evaluator | None = None,
    *,
    model: Names | Mapping[str, float] = (),
    agent: Names = (),
    max_tokens: int | None = None,
    evaluations: int | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    dollars: float | None = None,
    maximize: Names = (),
    minimize: Names = (),
    targets: Names = (),
    config: Path | str | None = None,
    name: str | None = None,
    seed: int | None = None,
    data_dir: Path | str | None = None,
    url: str | None = None,
    dashboard: bool = False,
    progress: bool = True,
    new: bool = False,
    confirm: Callable[[RunEstimate], None] | None = None,
    **spec: Any,
) -> Result:
    """Search for a better program, and return the best one found.

    Without a service, this process executes the run, and PostgreSQL in the data directory keeps it. An interrupted call
    (Ctrl-C, a crash) continues its run if it is repeated with the same arguments. With ``SPECIATE_URL`` or ``speciate
    up`` on the data directory, the service executes it.

    Args:
        program: The seed program: a file, or its text if the evaluator is a function. Without an evaluator a directory,
            or the name of a bundled problem.
        evaluator: A file with ``evaluate(program_path)``, which runs in the sandbox, or a function of this process:
            ``score(program_path)``, or ``score(candidate)`` if its parameter is named ``candidate``. It returns a
            number or a dict of numbers by name.

            A function runs **outside the sandbox**, with your rights, in another thread. What it imports or executes of
            ``program_path`` is the work of a model. ``candidate.call("solve", 7)`` runs the program in the sandbox and
            returns its JSON answer; ``candidate.program`` is its text.
        model: ``PROVIDER/NAME`` or the address of a server; several, or several with weights. Without a model and an
            agent, programs change at random.
        agent: Commands of coding agents, such as ``claude -p``.
        max_tokens: Longest completion of the models, reasoning included. Default: by the provider, mostly 16,384.
        evaluations: Budget in candidates. Default: 100, if there is no other limit.
        tokens: Budget in tokens of the models.
        seconds: Budget in seconds.
        dollars: Budget in US dollars.
        maximize: Names of the numbers to maximize. Default: ``combined_score`` or the only number.
        minimize: Names of the numbers to minimize.
        targets: Goals such as ``"loss <= 0.1"``, all to be met.
        config: OpenEvolve's ``config.yaml``; its ``max_iterations``, ``random_seed``, ``temperature`` and
            ``max_tokens`` are defaults.
        name: Name of the problem.
        seed: Seed of the random choices. Default: 0.
        data_dir: Data directory. Default: ``SPECIATE_DATA_DIR``.
        url: Address of a service.
        dashboard: Serve the dashboard meanwhile.
        progress: Show progress.
        new: Start anew even if a run with the same arguments is paused.
        confirm: Called with an estimate of calls, tokens and dollars before a new run starts; an error that it raises
            prevents the start.
        spec: Further fields of ``speciate.domain.run.RunSpec``: ``strategy``, ``strategy_options``, ``lanes``, …

    Raises:
        SpeciateError: The evaluator fails on the seed program, an argument is not valid, or a policy, the sandbox or
            PostgreSQL does not work. The message says what, where and what to do.
    """
    _check_names(spec)
    _check_types(program=program, evaluator=evaluator)
    if not callable(evaluator) and isinstance(program, str) and "\n" in program:
        remedy = _EVALUATORS if evaluator is None else "Write the program to a file, and pass its path."
        raise InvalidInputError("a text is a program only beside a function as evaluator.", remedy=remedy)
    budget = {"evaluations": evaluations, "tokens": tokens, "seconds": seconds, "dollars": dollars}
    goals = {"maximize": maximize, "minimize": minimize, "targets": targets}
    problem = {**{each: _listed(names, each) for each, names in goals.items()}, "name": name}
    function = None
    if callable(evaluator):
        from speciate.evolution.functions import ScoreFunction

        if config is not None:
            raise InvalidInputError("a function takes no config.", remedy="Leave it out.")
        function, evaluator = ScoreFunction(evaluator), None
    task = Task(
        program=program,
        evaluator=evaluator,
        function=function,
        problem=problem if config is None else {**problem, "config": config},
        models=_weighted(model),
        agents=_listed(agent, "agent"),
        sampling={"max_tokens": max_tokens},
        spec={"budget": budget, "seed": seed, **spec},
        anew=new,
        confirm=confirm,
    )
    with (
        evolving(task, load_settings(data_dir=data_dir, url=url), dashboard=dashboard) as evolution,
        showing(evolution, unread=function.unread if function else (), enabled=progress) as show,
    ):
        _follow(evolution, show, function.check if function else lambda: None)
        return result_of(evolution)


class _EstimatedError(Exception):
    def __init__(self, estimate: RunEstimate) -> None:
        self.estimate = estimate


def estimate(*args: Any, **options: Any) -> RunEstimate:
    """Return what ``evolve`` would spend with the same arguments, each amount with a range, and start nothing.

    It scores the seed program, and asks no model.
    """

    def stop(found: RunEstimate) -> None:
        raise _EstimatedError(found)

    try:
        evolve(*args, **{**options, "new": True, "confirm": stop})
    except _EstimatedError as stopped_by:
        return stopped_by.estimate
    raise AssertionError("a new run starts without confirmation")


async def evolve_async(*args: Any, **options: Any) -> Result:
    """Do what ``evolve`` does, in another thread. Cancelling it pauses the run."""
    cancelled = threading.Event()
    before = _CANCELLED.set(cancelled)
    search = asyncio.ensure_future(asyncio.to_thread(evolve, *args, **options))
    _CANCELLED.reset(before)
    try:
        return await asyncio.shield(search)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait([search])  # until the run is paused
        raise


def _follow(evolution: Evolution, show: Show, check: Callable[[], None]) -> None:
    """Show a run until it has ended or is paused."""
    cancelled = _CANCELLED.get()
    while not ((record := evolution.run.refresh()).state.ended or record.state is RunState.PAUSED):
        show(record)
        check()
        if cancelled.wait(_REFRESH_S):
            raise asyncio.CancelledError
    show(record)


def _check_names(spec: Mapping[str, object]) -> None:
    known = {*inspect.signature(evolve).parameters, *RunSpec.model_fields} - {*_INSTEAD}
    for name in spec:
        if name not in known:
            remedy = _INSTEAD.get(name) or did_you_mean(name, known) or "help(speciate.evolve) lists the arguments."
            raise InvalidInputError(f"evolve() has no argument {name!r}.", remedy=remedy)


def _check_types(**places: object) -> None:
    for name, value in places.items():
        if not (isinstance(value, Path | str | None) or (name == "evaluator" and callable(value))):
            expected = _EVALUATORS if name == "evaluator" else "Pass a path, or the text of a program."
            raise InvalidInputError(f"{name} is {value!r:.60}, of type {type(value).__name__}.", remedy=expected)


def _listed(names: Names, argument: str) -> tuple[str, ...]:
    several = () if names is None else names
    listed = (several,) if isinstance(several, str) or not isinstance(several, Iterable) else tuple(several)
    if wrong := [each for each in listed if not isinstance(each, str)]:
        raise InvalidInputError(f"{argument} is {wrong[0]!r:.60}.", remedy="Pass a text, or a list of texts.")
    return listed


def _weighted(models: Names | Mapping[str, float]) -> tuple[str, ...]:
    if isinstance(models, Mapping):
        return tuple(f"{model}={weight}" for model, weight in models.items())
    return _listed(models, "model")
