"""Do declared runs on a service, one line of JSON for each; a repeated command does those that are missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speciate.client import Client
from speciate.client.sync.run import RunHandle
from speciate.domain.problem import Problem
from speciate.domain.run import RunState

Line = dict[str, Any]


@dataclass(frozen=True)
class DeclaredRun:
    """A run that was declared before any was done.

    Attributes:
        key: Idempotency key, so that a repeated command finds the run of the first one.
        arm: Name of what is compared.
        problem: The problem.
        policies: Names of its policies, of equal weight.
        seed: Seed of the run.
        spec: Further arguments of the client's ``runs.create``.
    """

    key: str
    arm: str
    problem: Problem
    policies: tuple[str, ...]
    seed: int
    spec: Mapping[str, Any]


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def do_runs(
    service: Client,
    declared: Sequence[DeclaredRun],
    out: Path,
    measure: Callable[[RunHandle, DeclaredRun], Line],
    after: Callable[[Sequence[Line]], None],
    at_once: int = 1,
) -> list[Line]:
    """Do the runs that are not in a file, some at a time; return the lines of all, in the declared order.

    Args:
        service: The service.
        declared: The runs.
        out: File of the lines.
        measure: Returns the results of a completed run.
        after: Called with the lines so far after every run, to write a page.
        at_once: Runs at the same time.
    """
    done = {line["key"]: line for line in read_lines(out)}
    missing = [one for one in declared if one.key not in done]
    pool = ThreadPoolExecutor(at_once)
    with out.open("a", encoding="utf-8") as file:
        running = [pool.submit(_do_run, service, one, measure) for one in missing]
        try:
            for future in as_completed(running):
                line = future.result()
                done[line["key"]] = line
                file.write(json.dumps(line) + "\n")
                file.flush()
                lines = [done[each.key] for each in declared if each.key in done]
                sys.stderr.write(f"{len(lines)} of {len(declared)}: {line['key']}, {line['seconds']:.0f} s\n")
                after(lines)
        except BaseException:
            # The service goes on with what has begun: the next command finds those runs by their keys.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[each.key] for each in declared if each.key in done]


def _do_run(service: Client, one: DeclaredRun, measure: Callable[[RunHandle, DeclaredRun], Line]) -> Line:
    problem = service.problems.add(one.problem)
    run = service.runs.create(
        problem.id, dict.fromkeys(one.policies, 1.0), seed=one.seed, idempotency_key=one.key, **one.spec
    )
    if run.state is RunState.PAUSED:  # by an earlier command, whose cause was repaired
        run.resume()
    record = run.wait()
    if record.state is not RunState.COMPLETED:
        raise SystemExit(f"run {record.id} is {record.state.value}: {record.reason}. Repair it and repeat.")
    known = {"key": one.key, "arm": one.arm, "problem": one.problem.slug, "seed": one.seed}
    spent = {"seconds": record.spent.seconds, "tokens": record.spent.tokens}
    return known | spent | measure(run, one)


def write_results(page: Path, heading: str, text: str) -> None:
    """Replace the part of a page below a heading."""
    before, found, _ = page.read_text("utf-8").partition(f"{heading}\n")
    if not found:
        raise SystemExit(f"{page} has no heading {heading!r}.")
    page.write_text(f"{before}{heading}\n\n{text.rstrip()}\n", "utf-8")
