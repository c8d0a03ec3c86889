"""Policy comparison of the demo: one run per policy on the same held-out problems with the same budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
from rich.console import Console

from speciate.cli.output import ProgressLines, format_state, progress_bars, titled_table
from speciate.domain.run import RunState
from speciate.tournaments.statistics.significance import mcnemar

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle
    from speciate.schema.policies import PolicyVersion
    from speciate.schema.problems import ProblemSet

METHODS: Final = ("base", "grpo", "vpo", "vector-max-at-k")
"""Bundled policies to compare, by training method."""

_BASELINE: Final = "grpo"
_LABELS: Final = {"base": "base", "grpo": "GRPO", "vpo": "VPO", "vector-max-at-k": "Vector Max-at-K"}
_POLL_S: Final = 1.0
_ACTIVE: Final = (RunState.CREATED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class ComparisonTask:
    """A task of the comparison."""

    name: str
    problems: int
    """Number of held-out problems at ``--scale 1``."""
    answers: int
    """Budget of each run in evaluations."""


TASKS: Final = (ComparisonTask("maze", 100, 30), ComparisonTask("programs", 12, 90))


@dataclass(slots=True)
class TaskComparison:
    """The runs of all policies on one task."""

    task: ComparisonTask
    problems: ProblemSet
    policies: dict[str, PolicyVersion]
    """The policies by training method."""
    runs: dict[UUID, tuple[str, UUID]]
    """Method and problem of every run."""

    def reached(self, client: Client) -> dict[str, dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
        """Return the problems on which each method reached a target: by target and method, shape (N,)."""
        order = {problem.id: i for i, problem in enumerate(self.problems.problems)}
        reached_by = {
            target: {method: np.zeros(len(order), dtype=np.bool_) for method in self.policies}
            for target in self.problems.problems[0].targets
        }
        for method, policy in self.policies.items():
            for record in client.unlocks(policy=policy.id):
                if record.run_id in self.runs:
                    reached_by[record.target][method][order[record.problem_id]] = True
        return reached_by


def start(client: Client, seed: int, scale: float, out: Console) -> list[TaskComparison]:
    """Submit problems and policies and start all runs, problem by problem so that completed runs stay paired."""
    from speciate.cli.problems.importing import import_task
    from speciate.policies.bundled import bundled_policies

    bundled = {policy.slug: policy for policy in bundled_policies()}
    comparisons = []
    for task in TASKS:
        count = max(2, round(task.problems * scale))
        problems = import_task(client, task.name, "test", count)
        policies = {method: client.policies.add(bundled[f"{task.name}-{method}"]) for method in METHODS}
        comparisons.append(TaskComparison(task, problems, policies, {}))
    runs = sum(len(each.problems.problems) * len(each.policies) for each in comparisons)
    out.print(f"Policy comparison: {runs} runs, the same problems and answers per problem for each policy.")
    for each in comparisons:
        for problem in each.problems.problems:
            for method, policy in each.policies.items():
                run = client.runs.create(
                    problem.id,
                    policy.id,
                    budget=each.task.answers,
                    seed=seed,
                    strategy="best_of_n",
                    lanes=1,
                    batch=each.task.answers,
                    samples_per_prompt=each.task.answers,
                )
                each.runs[run.record.id] = (method, problem.id)
    return comparisons


def follow(client: Client, comparisons: Sequence[TaskComparison], out: Console) -> bool:
    """Show progress until all runs have ended; return True if all completed."""
    runs = {run_id for each in comparisons for run_id in each.runs}
    _wait(client, runs, out)
    incomplete = _incomplete(client, runs, comparisons)
    for run in incomplete[:3]:
        out.print(f"run {run.record.id} is {format_state(run.state.value, run.record.reason)}", markup=False)
    if incomplete:
        out.print(f"{len(incomplete)} runs did not complete; their targets count as not reached.")
    return not incomplete


def _incomplete(client: Client, runs: set[UUID], comparisons: Sequence[TaskComparison]) -> list[RunHandle]:
    policies = {policy.id for each in comparisons for policy in each.policies.values()}
    ended = [run for policy in policies for run in client.runs.list(policy=str(policy)) if run.record.id in runs]
    return [run for run in ended if run.state is not RunState.COMPLETED]


def _wait(client: Client, runs: set[UUID], out: Console) -> None:
    active, total, lines = set(runs), len(runs), ProgressLines(out)
    with progress_bars(out) as progress:
        bar = progress.add_task("comparison", total=total, status="")
        while active:
            time.sleep(_POLL_S)
            active &= {run.record.id for state in _ACTIVE for run in client.runs.list(state=state)}
            progress.update(bar, completed=total - len(active))
            lines.show([f"comparison: {total - len(active)} of {total} runs"], ended=not active)


def report(client: Client, comparisons: Sequence[TaskComparison], out: Console) -> None:
    """Print the targets each policy reached, and the exact test over problems against the baseline checkpoint."""
    for each in comparisons:
        for target, reached in each.reached(client).items():
            count, answers = len(each.problems.problems), each.task.answers
            title = f"{each.task.name}: {target.replace('_', ' ')}, {count} held-out problems, {answers} answers each"
            rows: list[tuple[object, ...]] = []
            for method, met in reached.items():
                pair = mcnemar(met, reached[_BASELINE])
                test = ("", "", "") if method == _BASELINE else (pair.only_a, pair.only_b, f"{pair.p_value:.2g}")
                rows.append((_LABELS[method], met.sum(), *test))
            columns = ("policy", ">reached", ">only this policy", ">only GRPO", ">p over problems")
            out.print(titled_table(title, columns, rows))
    out.print(
        "p: exact McNemar test over problems, against GRPO. It compares these checkpoints, one training run of each"
        " method; the evidence in the documentation compares the methods."
    )
