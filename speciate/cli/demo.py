"""``speciate demo``: evolve bundled problems through the whole service, then compare trained policies."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import command, command_group
from speciate.cli.errors import ExitCode

if TYPE_CHECKING:
    from speciate.client import Client

app = command_group()

_METHODS: Final = ("grpo", "base", "vpo", "vector-max-at-k")
"""Training methods of the bundled policies; the first one is the baseline."""
_MODEL_BATCH: Final = 8
"""Answers that a model writes before the first of them are shown."""
_MAX_ROWS: Final = 40

_SEARCHES: Final = {"sorting-network-8": 1200, "circle-packing-26": 1200, "online-bin-packing": 250}
"""Budget of each problem at ``--scale 1``, in evaluations."""
_MODEL_SEARCH: Final = {"circle-packing-26": 32}
"""Search of ``--model``: a small budget, since a processor writes about a hundred tokens of such a model a second."""
_COMPARISONS: Final = (("maze", 100, 30), ("programs", 12, 90))
"""Task, number of held-out problems at ``--scale 1``, and budget of each run in evaluations."""


@command(
    app,
    "demo",
    "speciate demo",
    "speciate demo --scale 0.2 --data-dir ./data",
    "speciate demo --model smollm2-135m",
    has_json=False,
)
def demo_command(
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory for data and logs.", show_default="~/.local/share/speciate-demo")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of every run.", min=0)] = 0,
    scale: Annotated[float, typer.Option(help="Factor on the default budgets.", min=0.01, max=100)] = 1.0,
    model: Annotated[
        str | None, typer.Option(help="Run one bundled problem with this language model, downloaded if it is missing.")
    ] = None,
) -> None:
    """Run the whole service on example problems, in about three minutes.

    First, bundled problems evolve without a model: the policy `mutator` changes the programs, the baseline for every
    policy. The best program of each problem is written below `best`. Then tournaments compare a small base model and
    the policies trained from it with GRPO, VPO and Vector Max-at-K on held-out mazes and programs.

    The demo has its own data directory and free ports, so it runs beside `speciate up`.
    """
    from speciate.cli.up import StopRequested, start_service, stop_on_signals

    out = output.console()
    with stop_on_signals():
        from speciate.cli.local_service import LocalService
        from speciate.client import Client
        from speciate.domain.access import DEFAULT_PROJECT
        from speciate.inference.downloads.fetch import fetch_model
        from speciate.settings import load_settings

        # Its own service, not the one at SPECIATE_URL, and its own directory beside that of `speciate up`.
        defaults = load_settings(data_dir=data_dir, port=0, host="127.0.0.1")
        own = defaults.data_dir if data_dir else defaults.data_dir.with_name(f"{defaults.data_dir.name}-demo")
        models = {}
        if model is not None:
            with out.status(f"Getting {model} …"):
                models[model] = fetch_model(model, defaults.data_dir)
        with LocalService(defaults.model_copy(update={"url": None, "data_dir": own}), models) as service:
            try:
                start_service(service, out)
                output.print_line(f"Dashboard: {service.url}/\nData and logs are in {own}.")
                token = service.settings.token
                secret = token.get_secret_value() if token else None
                with Client(service.url, secret, project=DEFAULT_PROJECT) as client:
                    completed = _search(client, seed, scale, model)
                    if model is None:
                        completed &= _compare(client, seed, scale)
            except StopRequested:
                output.print_line("Stopping …")
                raise
    output.print_line(f"Stopped. The runs are stored in {own}.")
    output.print_line(f"Browse them with: speciate up --data-dir {quote(str(own))}")
    if not completed:
        raise typer.Exit(ExitCode.FAILED)


def _search(client: Client, seed: int, scale: float, model: str | None) -> bool:
    """Run the searches together and show one after another; return True if all completed."""
    from speciate.cli.runs.watch import watch_run
    from speciate.domain.policy import MUTATOR
    from speciate.problems.loader import bundled, load_problem

    policy, problems = client.policies.get(model or MUTATOR), bundled()
    runs = []
    for slug, evaluations in (_SEARCHES if model is None else _MODEL_SEARCH).items():
        problem = client.problems.add(load_problem(problems[slug]))
        budget = max(32 if model is None else 8, round(evaluations * scale))
        batch = None if model is None else _MODEL_BATCH
        runs.append(client.runs.create(problem.id, policy.id, budget=budget, seed=seed, batch=batch))
    codes = []
    for run in runs:
        output.print_line()
        output.print_line(run.record.problem, style="bold")
        codes.append(watch_run(client, run, None, write=True, lasts=False))
    return all(code in {ExitCode.OK, ExitCode.NOT_UNLOCKED} for code in codes)


def _compare(client: Client, seed: int, scale: float) -> bool:
    """Compare the bundled policies in a tournament for each task; return True if all completed."""
    from speciate.cli.problems.importing import import_task
    from speciate.cli.tournament_report import show_report
    from speciate.cli.tournaments import VIEW
    from speciate.policies.bundled import bundled_policies
    from speciate.tournaments.head_to_head import head_to_head

    bundled = {policy.slug: policy for policy in bundled_policies()}
    codes = []
    for task, problems, answers in _COMPARISONS:
        problem_set = import_task(client, task, "test", max(2, round(problems * scale)))
        policies = [client.policies.add(bundled[f"{task}-{method}"]) for method in _METHODS]
        entrants, baseline = head_to_head([policy.definition.slug for policy in policies], strategy="best_of_n")
        asked = {"batch": answers, "samples_per_prompt": answers}
        declaration = {
            "slug": f"{problem_set.slug}-seed-{seed}",
            "problems": [f"set:{problem_set.slug}"],
            "entrants": [entrant.model_dump(mode="json") | asked for entrant in entrants],
            "baseline": baseline,
            "seeds": [seed],
            "budget": {"evaluations": answers},
        }
        tournament = client.tournaments.create(declaration)
        output.print_line()
        codes.append(VIEW.follow(client, tournament.slug))
        show_report(client.tournaments.report(tournament.slug), _MAX_ROWS, full=False)
    return all(code is ExitCode.OK for code in codes)
