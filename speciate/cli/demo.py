"""``speciate demo``: real problems evolve through the whole service, then trained policies meet head to head."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from speciate.cli.output import console, sanitize

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from speciate.client import Client, RunHandle
    from speciate.domain.objective import Objective
    from speciate.domain.problem import Problem
    from speciate.ports.records.unlocks import UnlockRecord

_LINE_EVERY_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A bundled problem that the demo shows.

    Attributes:
        slug: Its name.
        evaluations: Budget at ``--scale 1``.
        shown: The objective whose course is shown.
        among: Rule that a candidate must meet to be shown: a network that does not sort may be as small as it likes.
    """

    slug: str
    evaluations: int
    shown: str
    among: str


EXHIBITS: Final = (
    Exhibit("sorting-network-8", 1200, "comparators", " and ".join(f"sorted_{ones} >= 1" for ones in range(1, 8))),
    Exhibit("circle-packing-26", 1200, "sum_of_radii", "overlap <= 0"),
    # No worse than the seed, best fit, on the other two families.
    Exhibit("online-bin-packing", 250, "excess_or1", "excess_triplet <= 11.6 and excess_weibull <= 7.42"),
)


@dataclass(slots=True)
class Shown:
    """A run of the demo with what is needed to show it."""

    exhibit: Exhibit
    problem: Problem
    run: RunHandle
    seed: dict[str, float] | None = None
    best: float | None = None

    def look(self) -> None:
        """Fetch the present state, the seed's rewards once they are known, and the best that may be shown."""
        from speciate.domain.rule import parse_rule

        record = self.run.refresh()
        if self.seed is None and record.evaluated:
            self.seed = self.run.candidate(1).rewards
        rule = parse_rule(self.exhibit.among, self.problem.space.names)
        found = [elite.rewards for elite in self.run.archive() if rule.holds(tuple(elite.rewards.values()))]
        choose = max if self.objective().direction.value == "maximize" else min
        self.best = choose((rewards[self.exhibit.shown] for rewards in found), default=None)

    def objective(self) -> Objective:
        """Return the objective that is shown."""
        return next(o for o in self.problem.objectives if o.name == self.exhibit.shown)


def demo_command(
    data_dir: Annotated[Path | None, typer.Option(help="Where the embedded servers keep their data.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every run.", min=0)] = 0,
    scale: Annotated[float, typer.Option(help="Share of the usual budgets.", min=0.01, max=100)] = 1.0,
) -> None:
    """See the whole service at work, in about three minutes: API, queue, workers, database, policy server, sandbox.

    First bundled problems evolve without any model: programs are changed by `program_mutator`, the floor that every
    policy has to beat. Then small policies, trained by GRPO, by VPO and by Vector Max-at-K, and the base of all three
    are asked about the same mazes and programs that none of them was trained on.
    """
    from speciate.cli.up import StopRequested, start_stack, stop_on_signals

    out = console()
    with stop_on_signals():
        from speciate.cli import demo_comparison
        from speciate.cli.stack import Stack
        from speciate.client import Client
        from speciate.domain.access import DEFAULT_PROJECT
        from speciate.settings import load_settings

        # SPECIATE_URL names another service than the one that is shown here.
        given = load_settings(data_dir=data_dir, port=0, host="127.0.0.1")
        settings = given.model_copy(update={"url": None})
        with Stack(settings) as stack:
            try:
                start_stack(stack, out)
                out.print(f"Watch it in a browser too: {stack.url}/", soft_wrap=True)
                token = stack.settings.token
                secret = token.get_secret_value() if token else None
                with Client(stack.url, secret, project=DEFAULT_PROJECT) as client:
                    shown = _start_runs(client, seed, scale)
                    _follow(shown, out)
                    completed = _report(shown, out)
                    out.print()
                    rounds = demo_comparison.start(client, seed, scale, out)
                    completed &= demo_comparison.follow(client, rounds, out)
                    demo_comparison.report(client, rounds, out)
            except StopRequested:
                out.print("Stopping …")
                raise
    out.print(f"Everything is stopped; the runs are kept in {sanitize(settings.data_dir)}.")
    out.print("Look at them with `make up`: its dashboards show every run, as does `.venv/bin/speciate runs list`.")
    if not completed:
        raise typer.Exit(1)


def _start_runs(client: Client, seed: int, scale: float) -> list[Shown]:
    from speciate.domain.policy import Policy
    from speciate.problems.loader import bundled, load_problem

    policy = client.policies.add(Policy(slug="program-mutator", kind="program_mutator", training_method="none"))
    shown = []
    for exhibit in EXHIBITS:
        problem = load_problem(bundled()[exhibit.slug])
        version = client.problems.add(problem)
        budget = max(32, round(exhibit.evaluations * scale))
        run = client.runs.create(version.id, policy.id, budget=budget, seed=seed)
        shown.append(Shown(exhibit, problem, run))
    return shown


def _follow(shown: Sequence[Shown], out: Console) -> None:
    """Show progress until every run has ended: bars in a terminal, a line now and then elsewhere."""
    with _progress(out) as progress:
        bars = {
            each.exhibit.slug: progress.add_task(
                each.exhibit.slug, total=each.run.record.spec.budget.evaluations, now=""
            )
            for each in shown
        }
        last = time.monotonic()
        while True:
            for each in shown:
                each.look()
                _move(progress, bars[each.exhibit.slug], each)
            ended = all(each.run.state.ended or each.run.state.value == "paused" for each in shown)
            if not out.is_terminal and (ended or time.monotonic() - last >= _LINE_EVERY_S):
                last = time.monotonic()
                for each in shown:
                    out.print(f"{each.exhibit.slug}: {each.run.record.spent.evaluations} evaluations, {_now(each)}")
            if ended:
                return
            time.sleep(_LOOK_EVERY_S)


def _progress(out: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}", markup=False),
    )
    return Progress(*columns, console=out, disable=not out.is_terminal)


def _move(progress: Progress, bar: TaskID, each: Shown) -> None:
    progress.update(bar, completed=each.run.record.spent.evaluations, now=_now(each))


def _now(each: Shown) -> str:
    if each.seed is None:
        return "…"
    reached = f", reached {', '.join(each.run.record.reached)}" if each.run.record.reached else ""
    return f"{each.exhibit.shown} {each.seed[each.exhibit.shown]:.4g} → {_number(each.best)}{reached}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _report(shown: Sequence[Shown], out: Console) -> bool:
    """Print what improved and what was unlocked; return whether every run completed."""
    improved = Table(title="What evolved (only valid solutions are counted)", title_justify="left")
    for heading in ("problem", "objective", "better is", "seed", "best", "evaluations", "failed"):
        improved.add_column(heading, justify="left" if heading in {"problem", "objective", "better is"} else "right")
    for each in shown:
        record, name = each.run.record, each.exhibit.shown
        before = _number(None if each.seed is None else each.seed[name])
        improved.add_row(
            each.exhibit.slug,
            name,
            "more" if each.objective().direction.value == "maximize" else "less",
            before,
            _number(each.best),
            str(record.spent.evaluations),
            str(record.failed),
        )
    out.print(improved)
    unlocks = [unlock for each in shown for unlock in each.run.unlocks()]
    out.print(_record(unlocks))
    for each in shown:
        if each.run.record.alarm or each.run.state.value != "completed":
            out.print(Text(sanitize(f"{each.exhibit.slug}: {each.run.state.value}, {each.run.record.reason}")))
    unlocked = [unlock for unlock in unlocks if unlock.unlock]
    noun = "problem" if len(unlocked) == 1 else "problems"
    out.print(
        f"{len(unlocked)} {noun} unlocked, each confirmed by evaluating the program again."
        if unlocked
        else "Nothing was unlocked within these budgets; another --seed or a larger --scale may."
    )
    return all(each.run.state.value == "completed" for each in shown)


def _record(unlocks: Sequence[UnlockRecord]) -> Table:
    table = Table(title="What was reached (✔ unlocks the problem)", title_justify="left")
    for heading in ("problem", "target", "", "policy", "candidate", "evaluations", "seconds"):
        table.add_column(heading, justify="right" if heading in {"candidate", "evaluations", "seconds"} else "left")
    for unlock in unlocks:
        table.add_row(
            f"{unlock.problem}@{unlock.problem_version}",
            unlock.target,
            "✔" if unlock.unlock else "",
            f"{unlock.policy}@{unlock.policy_version}",
            str(unlock.number),
            str(unlock.evaluations),
            f"{unlock.seconds:.1f}",
        )
    return table
