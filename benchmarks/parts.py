"""Shared parts of the benchmarks: a problem, a policy, a service, and CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

import psutil
from rich.console import Console
from rich.table import Table

from speciate.cli.local_service import LocalService
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.embedded.processes import ChildCommand
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.storage.stores import Stores

CONSOLE = Console(width=110)
SPINNING = "none (benchmark)"
"""Tier of the evaluator of ``SpinningService``."""
# The number is code, not a comment: programs whose trees are equal are not evaluated again.
PROGRAM = "\n".join(["def solve(x):", *(f"    y{i} = x * {i}.5 + 1" for i in range(10)), "    return y9 + {number}"])


def problem(objectives: int = 4) -> Problem:
    """A problem of four rewards; its evaluator is never called, the spinning one stands in for it."""
    return Problem.model_validate(
        {
            "slug": "spinning",
            "title": "One millisecond of processor time",
            "kind": "evaluator",
            "objectives": [{"name": f"r{i}"} for i in range(objectives)],
            "targets": [{"name": "never", "rule": "r0 >= 2", "unlock": True}],
            "seed_program": PROGRAM.replace("{number}", "0"),
            "evaluator": "def evaluate(candidate, context): ...",
        }
    )


def policy() -> Policy:
    """A scripted policy whose every answer is another program of a dozen lines."""
    return Policy(slug="scripted", kind="scripted", options={"template": f"```python\n{PROGRAM}\n```"})


def spec(evaluations: int, **changes: object) -> RunSpec:
    """Sixteen candidates a unit of work, four batches in flight for each slot."""
    given = {"budget": {"evaluations": evaluations}, "lanes": 8, "batch": 16, "samples_per_prompt": 4, **changes}
    return RunSpec.model_validate(given)


def begin(stores: Stores, run_spec: RunSpec) -> UUID:
    """Start a run of the benchmark's problem."""
    stored, _ = stores.catalog.add_problem(problem())
    registered, _ = stores.catalog.add_policy(policy())
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        prepare_run(stores.runs, problem=stored, policies=RunPolicies(registered), spec=run_spec),
    )
    return run_id


def wait_for(stores: Stores, run_id: UUID, evaluations: int) -> None:
    """Wait until a run has spent that many evaluations."""
    while stores.runs.get(run_id).spent.evaluations < evaluations:
        time.sleep(0.1)


class SpinningService(LocalService):
    """The service with the spinning evaluator in its workers."""

    def _command(self, name: str, module: str, *options: str) -> ChildCommand:
        apps = {"workers.app": "benchmarks.spinning_app"}
        return super()._command(name, module, *(apps.get(each, each) for each in options))

    def _wait_for_workers(self) -> None:
        super()._wait_for_workers()
        if self.tiers != (SPINNING,):
            raise RuntimeError(f"the workers evaluate in tier {self.tiers}, not with the evaluator of this benchmark")


def processor_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that processes and their descendants, ended ones included, have used so far."""
    total = 0.0
    for pid in pids:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def service_pids(stack: LocalService, *, workers: bool = True) -> list[int]:
    """Return the roots of the process trees of the service: servers, and unless left out API and workers."""
    pids = [status.pid for status in stack.servers.poll().values()] if stack.servers else []
    return pids + ([status.pid for status in stack.poll().values()] if workers else [])


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    CONSOLE.print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))
