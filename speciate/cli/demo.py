"""``speciate demo``: evolve bundled problems through the whole service, then compare trained policies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from speciate.cli.common import command_group, examples
from speciate.cli.output import ProgressLines, console, format_state, pluralize, progress_bars, sanitize, titled_table
from speciate.domain.errors import SpeciateError

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle
    from speciate.domain.objective import Objective
    from speciate.domain.problem import Problem

app = command_group()

_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class DemoProblem:
    """A bundled problem of the demo."""

    slug: str
    evaluations: int
    """Evaluation budget at ``--scale 1``."""
    objective: str


DEMO_PROBLEMS: Final = (
    DemoProblem("sorting-network-8", 1200, "comparators"),
    DemoProblem("circle-packing-26", 1200, "sum_of_radii"),
    DemoProblem("online-bin-packing", 250, "excess_or1"),
)


@dataclass(slots=True)
class DemoRun:
    """A run of the demo, and the rewards of its seed program."""

    source: DemoProblem
    problem: Problem
    run: RunHandle
    seed: dict[str, float] | None = None

    def refresh(self) -> None:
        record = self.run.refresh()
        if self.seed is None and record.evaluated:
            self.seed = self.run.candidate(1).rewards

    @property
    def best(self) -> float | None:
        best = self.run.record.best
        return None if best is None else best.rewards[self.source.objective]

    @property
    def budget(self) -> int | None:
        return self.run.record.spec.budget.evaluations

    @property
    def evaluations(self) -> int:
        return self.run.record.spent.evaluations

    @property
    def stopped(self) -> bool:
        return self.run.state.ended or self.run.state.value == "paused"

    def objective(self) -> Objective:
        return next(o for o in self.problem.objectives if o.name == self.source.objective)


MODEL_DEMO: Final = DemoProblem("circle-packing-26", 32, "sum_of_radii")
"""Problem of ``--model``: a small budget, since a processor writes about a hundred tokens of such a model a second."""

_MODEL_BATCH: Final = 8
"""Answers that a model writes before the first of them are shown."""


@app.command(
    "demo",
    epilog=examples(
        "speciate demo", "speciate demo --scale 0.2 --data-dir ./data", "speciate demo --model smollm2-135m"
    ),
)
def demo_command(
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory for data and logs.", show_default="~/.local/share/speciate-demo")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of every run.", min=0)] = 0,
    scale: Annotated[float, typer.Option(help="Factor on the default budgets.", min=0.01, max=100)] = 1.0,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Run one bundled problem with this language model, downloaded if it is missing."),
    ] = None,
) -> None:
    """Run the whole service on example problems, in about three minutes.

    First, bundled problems evolve without a model: the policy `mutator` changes the programs, the baseline for every
    policy. Then a small base model and the policies trained from it with GRPO, VPO and Vector Max-at-K are compared on
    held-out mazes and programs. At the end, the best program of each problem is written below `best`.

    The demo has its own data directory and free ports, so it runs beside `speciate up`.
    """
    from speciate.cli.up import StopRequested, start_service, stop_on_signals

    out = console()
    with stop_on_signals():
        from speciate.cli import demo_comparison
        from speciate.cli.local_service import LocalService
        from speciate.client import Client
        from speciate.domain.access import DEFAULT_PROJECT
        from speciate.settings import load_settings

        # Its own service, not the one at SPECIATE_URL, and its own directory beside that of `speciate up`.
        defaults = load_settings(data_dir=data_dir, port=0, host="127.0.0.1")
        own = defaults.data_dir if data_dir else defaults.data_dir.with_name(f"{defaults.data_dir.name}-demo")
        settings = defaults.model_copy(update={"url": None, "data_dir": own})
        models = {} if model is None else {model: _fetched(model, defaults.data_dir, out)}
        with LocalService(settings, models) as service:
            try:
                start_service(service, out)
                out.print(f"Dashboard: {service.url}/", soft_wrap=True)
                out.print(f"Data and logs are in {sanitize(own)}.", soft_wrap=True)
                token = service.settings.token
                secret = token.get_secret_value() if token else None
                with Client(service.url, secret, project=DEFAULT_PROJECT) as client:
                    runs = _start_runs(client, seed, scale, model)
                    _follow(runs, out)
                    completed = _print_results(runs, out)
                    if model is None:
                        out.print()
                        comparisons = demo_comparison.start(client, seed, scale, out)
                        completed &= demo_comparison.follow(client, comparisons, out)
                        demo_comparison.report(client, comparisons, out)
                    print_best_programs(client, runs, out)
            except StopRequested:
                out.print("Stopping …")
                raise
    out.print(f"Stopped. The runs are stored in {sanitize(own)}.", soft_wrap=True)
    out.print(f"Browse them with: speciate up --data-dir {quote(sanitize(own))}", soft_wrap=True)
    if not completed:
        raise typer.Exit(1)


def _fetched(model: str, data_dir: Path, out: Console) -> Path:
    from speciate.inference.downloads.fetch import fetch_model

    with out.status(f"Getting {model} …"):
        return fetch_model(model, data_dir)


def _start_runs(client: Client, seed: int, scale: float, model: str | None) -> list[DemoRun]:
    from speciate.domain.policy import MUTATOR
    from speciate.problems.loader import bundled, load_problem

    policy = client.policies.get(model or MUTATOR)
    runs = []
    for source in DEMO_PROBLEMS if model is None else (MODEL_DEMO,):
        problem = load_problem(bundled()[source.slug])
        version = client.problems.add(problem)
        budget = max(32 if model is None else 8, round(source.evaluations * scale))
        batch = None if model is None else _MODEL_BATCH
        run = client.runs.create(version.id, policy.id, budget=budget, seed=seed, batch=batch)
        runs.append(DemoRun(source, problem, run))
    return runs


def _follow(runs: Sequence[DemoRun], out: Console) -> None:
    with progress_bars(out) as progress:
        bars = [progress.add_task(each.source.slug, total=each.budget, status="") for each in runs]
        lines = ProgressLines(out)
        while True:
            for bar, each in zip(bars, runs, strict=True):
                each.refresh()
                progress.update(bar, completed=each.evaluations, status=_summary(each))
            ended = all(each.stopped for each in runs)
            lines.show(
                [f"{r.source.slug}: {pluralize(r.evaluations, 'evaluation')}, {_summary(r)}" for r in runs], ended=ended
            )
            if ended:
                return
            time.sleep(_POLL_S)


def _summary(each: DemoRun) -> str:
    if each.seed is None:
        return "…"
    reached = f", reached {', '.join(each.run.record.reached)}" if each.run.record.reached else ""
    spent = each.run.record.spent
    pace = (
        f", {spent.tokens:,} tokens at {spent.tokens / spent.seconds:.0f}/s" if spent.tokens and spent.seconds else ""
    )
    return f"{each.source.objective} {each.seed[each.source.objective]:.4g} → {_format(each.best)}{reached}{pace}"


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _print_results(runs: Sequence[DemoRun], out: Console) -> bool:
    columns = ("problem", "objective", ">seed", ">best", ">evaluations", ">failed")
    rows = [
        (r.source.slug, r.objective().directed, _format(None if r.seed is None else r.seed[r.source.objective]),
         _format(r.best), r.evaluations, r.run.record.failed)
        for r in runs
    ]  # fmt: skip
    out.print(titled_table("Seed program and best candidate", columns, rows))
    unlocks = [unlock for each in runs for unlock in each.run.unlocks()]
    columns = ("problem", "target", "", ">candidate", ">evaluations", ">seconds")
    reached = [
        (u.problem, u.target, "✔" if u.unlock else "", u.number, u.evaluations, f"{u.seconds:.1f}") for u in unlocks
    ]
    out.print(titled_table("Targets reached (✔ unlocks the problem)", columns, reached))
    incomplete = [each for each in runs if each.run.state.value != "completed"]
    for each in incomplete:
        out.print(Text(sanitize(f"{each.source.slug}: {format_state(each.run.state.value, each.run.record.reason)}")))
    count = sum(unlock.unlock for unlock in unlocks)
    out.print(
        f"{pluralize(count, 'problem')} unlocked and confirmed by a second evaluation."
        if count
        else "No problem was unlocked within these budgets. Try another --seed or a larger --scale."
    )
    return not incomplete


def print_best_programs(client: Client, runs: Sequence[DemoRun], out: Console) -> None:
    """Print the best candidate of each run and write its program."""
    from speciate.cli.best_program import find_best_program

    for each in runs:
        out.print()
        out.print(Text(each.source.slug, style="bold"))
        try:
            program = find_best_program(client, each.run)
            # The service ends with the demo, and its address with it.
            program.print_facts(program.write(program.default_directory), page=False)
        except SpeciateError as error:
            out.print(Text(sanitize(error)))
