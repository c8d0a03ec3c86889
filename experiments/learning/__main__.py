"""Run the declared comparison on a service with a learn worker; a repeated command continues it.

``speciate up --learn``, then ``python -m experiments.learning --url http://127.0.0.1:8420 --out learning.jsonl``. Runs
are started one after the other, so that running time is time of the whole machine. Every finished run is one line of
the file; lines that are there are not repeated. The results are written into the page after every run, so that a
command that is stopped leaves what it measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.learning.plan import PARITIES, TASKS, DeclaredRun, Plan, declared_runs
from experiments.learning.report import report, write_results
from speciate.client import Client
from speciate.domain.run import RunState


def main() -> int:
    """Do the missing runs; print progress and the report, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.learning")
    parser.add_argument("--url", default="http://127.0.0.1:8420", help="service with a learn worker")
    parser.add_argument("--out", type=Path, default=Path("learning.jsonl"), help="results, one line per run")
    parser.add_argument("--problems", type=int, default=Plan.problems, help="problems of each task")
    parser.add_argument("--seeds", type=int, default=Plan.seeds, help="training seeds")
    parser.add_argument("--evaluations", type=int, default=Plan.evaluations, help="budget at equal answers")
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="budget at equal time")
    parser.add_argument("--groups", type=int, default=Plan.groups, help="groups of a step")
    parser.add_argument("--parity", choices=PARITIES, help="do only the runs at equal answers or at equal time")
    parser.add_argument("--page", type=Path, help="page whose results are written, such as docs/evidence/learning.md")
    asked = parser.parse_args()
    plan = Plan(asked.problems, asked.seeds, asked.evaluations, asked.seconds, asked.groups)
    wanted = [run for run in declared_runs(plan) if asked.parity in {None, run.parity}]
    done = {line["key"]: line for line in _lines(asked.out)}
    with Client(asked.url) as service, asked.out.open("a", encoding="utf-8") as file:
        for number, declared in enumerate(wanted, start=1):
            if declared.key in done:
                continue
            done[declared.key] = line = _measure(service, declared)
            file.write(json.dumps(line) + "\n")
            file.flush()
            sys.stderr.write(f"{number} of {len(wanted)}: {_progress(line)}\n")
            if asked.page is not None:
                write_results(asked.page, [done[run.key] for run in wanted if run.key in done])
    sys.stdout.write(report(done[run.key] for run in wanted))
    return 0


def _progress(line: dict[str, Any]) -> str:
    unlocked = "unlocked" if line["unlocked"] else "not unlocked"
    return (
        f"{line['problem']} {line['arm']} seed {line['seed']} {line['parity']}: {unlocked} after"
        f" {line['evaluations']:,} answers, {line['seconds']:.0f} s, {line['steps']} steps"
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _measure(service: Client, declared: DeclaredRun) -> dict[str, Any]:
    problem = service.problems.add(declared.problem)
    policy = TASKS[declared.task]
    run = service.runs.create(problem.id, policy, idempotency_key=declared.key, **declared.spec)
    record = run.wait()
    if record.state is not RunState.COMPLETED:
        raise SystemExit(f"run {record.id} is {record.state.value}: {record.reason}. Repair it, resume it, and repeat.")
    learned = record.learning
    return {
        "key": declared.key,
        "run": str(record.id),
        "task": declared.task,
        "problem": declared.problem.slug,
        "arm": declared.arm,
        "seed": declared.seed,
        "parity": declared.parity,
        "unlocked": record.unlocked,
        "evaluations": record.spent.evaluations,
        "seconds": record.spent.seconds,
        "tokens": record.spent.tokens,
        "steps": 0 if learned is None else learned.step,
        "learning_s": 0.0 if learned is None else learned.seconds,
        "ended": None if learned is None else learned.ended,
    }


if __name__ == "__main__":
    raise SystemExit(main())
