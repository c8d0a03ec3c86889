"""The head-to-head of the demo: the same held-out problems, the same budget, one run for each policy, side by side.

Everything goes through the service: API, queue, policy server, sandbox, record of unlocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
from rich.console import Console
from rich.table import Table

from speciate.domain.run import RunState
from speciate.tournaments.statistics.significance import mcnemar

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.ports.records.policies import PolicyVersion
    from speciate.ports.records.problems import ProblemSet

METHODS: Final = ("base", "grpo", "vpo", "vector-max-at-k")
"""Which of a task's bundled policies meet, the one that others are compared with second."""

_BASELINE: Final = "grpo"
_LABELS: Final = {"base": "base", "grpo": "GRPO", "vpo": "VPO", "vector-max-at-k": "Vector Max-at-K"}
_LINE_EVERY_S: Final = 10.0
_LOOK_EVERY_S: Final = 1.0
_UNDER_WAY: Final = (RunState.CREATED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class Contest:
    """A task with how it is contested.

    Attributes:
        task: Name of the task.
        problems: Held-out problems at ``--scale 1``.
        answers: Budget of each run, in evaluations.
    """

    task: str
    problems: int
    answers: int


CONTESTS: Final = (Contest("maze", 100, 30), Contest("programs", 12, 90))


@dataclass(slots=True)
class Round:
    """A contest under way.

    Attributes:
        contest: What it is.
        problems: The problems.
        policies: The policies by method.
        runs: Run of every method and problem.
    """

    contest: Contest
    problems: ProblemSet
    policies: dict[str, PolicyVersion]
    runs: dict[UUID, tuple[str, UUID]]

    def reached(self, client: Client) -> dict[str, dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
        """Return which problems each method reached, by target and method, shape (N,) each."""
        order = {problem.id: i for i, problem in enumerate(self.problems.problems)}
        found = {
            target: {method: np.zeros(len(order), dtype=np.bool_) for method in self.policies}
            for target in self.problems.problems[0].targets
        }
        for method, policy in self.policies.items():
            for record in client.unlocks(policy=policy.id):
                if record.run_id in self.runs:
                    found[record.target][method][order[record.problem_id]] = True
        return found


def start(client: Client, seed: int, scale: float, out: Console) -> list[Round]:
    """Submit problems and policies, and start all runs, problem by problem so that what is done stays paired."""
    from speciate.cli.problems.importing import import_task
    from speciate.policies.bundled import bundled_policies

    bundled = {policy.slug: policy for policy in bundled_policies()}
    rounds = []
    for contest in CONTESTS:
        count = max(2, round(contest.problems * scale))
        problems = import_task(client, contest.task, "test", count)
        policies = {method: client.policies.add(bundled[f"{contest.task}-{method}"]) for method in METHODS}
        rounds.append(Round(contest, problems, policies, {}))
    runs = sum(len(each.problems.problems) * len(each.policies) for each in rounds)
    out.print(f"Head to head: {runs} runs, the same problems and the same number of answers for each policy.")
    for each in rounds:
        for problem in each.problems.problems:
            for method, policy in each.policies.items():
                run = client.runs.create(
                    problem.id,
                    policy.id,
                    budget=each.contest.answers,
                    seed=seed,
                    strategy="best_of_n",
                    lanes=1,
                    batch=each.contest.answers,
                    samples_per_prompt=each.contest.answers,
                )
                each.runs[run.record.id] = (method, problem.id)
    return rounds


def follow(client: Client, rounds: Sequence[Round], out: Console) -> bool:
    """Show progress until all runs have ended; return whether all of them completed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    open_runs = {run_id for each in rounds for run_id in each.runs}
    total, last = len(open_runs), time.monotonic()
    with Progress(*columns, console=out, disable=not out.is_terminal) as progress:
        bar = progress.add_task("head-to-head", total=total)
        while open_runs:
            time.sleep(_LOOK_EVERY_S)
            open_runs &= {run.record.id for state in _UNDER_WAY for run in client.runs.list(state=state)}
            progress.update(bar, completed=total - len(open_runs))
            if not out.is_terminal and (not open_runs or time.monotonic() - last >= _LINE_EVERY_S):
                last = time.monotonic()
                out.print(f"head-to-head: {total - len(open_runs)} of {total} runs")
    policies = {policy.id for each in rounds for policy in each.policies.values()}
    ended = [run for policy in policies for run in client.runs.list(policy=str(policy))]
    known = {run_id for each in rounds for run_id in each.runs}
    unfinished = [run for run in ended if run.record.id in known and run.state is not RunState.COMPLETED]
    for run in unfinished[:3]:
        out.print(f"run {run.record.id} is {run.state.value}: {run.record.reason}", markup=False)
    if unfinished:
        out.print(f"{len(unfinished)} runs did not complete; their problems count as not reached.")
    return not unfinished


def report(client: Client, rounds: Sequence[Round], out: Console) -> None:
    """Print who unlocked what, what only one of two did, and whether chance could have done it."""
    for each in rounds:
        for target, reached in each.reached(client).items():
            count, answers = len(each.problems.problems), each.contest.answers
            title = (
                f"{each.contest.task}: {target.replace('_', ' ')}, {count} held-out problems, {answers} answers each"
            )
            table = Table(title=title, title_justify="left")
            for heading in ("policy", "reached", "only it, not GRPO", "only GRPO", "exact McNemar p"):
                table.add_column(heading, justify="left" if heading == "policy" else "right")
            for method, met in reached.items():
                if method == _BASELINE:
                    table.add_row(_LABELS[method], str(met.sum()), "", "", "")
                    continue
                pair = mcnemar(met, reached[_BASELINE])
                table.add_row(
                    _LABELS[method], str(met.sum()), str(pair.only_a), str(pair.only_b), f"{pair.p_value:.2g}"
                )
            out.print(table)
    out.print("One training run of each method; docs/evidence/reproduction.md compares several (`make reproduce`).")
