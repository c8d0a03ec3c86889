"""Do the declared jobs on one core; a repeated command continues where the last one stopped.

``nice -n 15 python -m experiments.learning`` appends one line per job to ``docs/evidence/learning.jsonl`` and writes
the results into ``docs/evidence/learning.md`` after every job.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before numpy: processor seconds are those of one core
    os.environ[_name] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Final  # noqa: E402

from experiments.learning.plan import FROZEN, SCREENED, TASKS, Job, Plan, declared_jobs, number_of_jobs, positions  # noqa: E402
from experiments.learning.report import write_results  # noqa: E402
from experiments.learning.service import LocalService, local_service  # noqa: E402

_EVIDENCE: Final = Path(__file__).parents[2] / "docs" / "evidence"
_SCREENING_SEED: Final = 1_000_000
"""No search has it: the answers of the screening are used for nothing else."""


def main() -> int:
    """Do the missing jobs, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.learning")
    parser.add_argument("--out", type=Path, default=_EVIDENCE / "learning.jsonl", help="results, one line per job")
    parser.add_argument("--page", type=Path, default=_EVIDENCE / "learning.md", help="page whose results are written")
    for name in Plan.__dataclass_fields__:
        parser.add_argument(f"--{name}", type=int, default=getattr(Plan, name), help=f"default {getattr(Plan, name)}")
    given = vars(parser.parse_args())
    out, page = given.pop("out"), given.pop("page")
    plan, lines = Plan(**given), _lines(out)
    with out.open("a", encoding="utf-8") as file, local_service() as service:

        def keep(line: dict[str, Any]) -> None:
            lines[line["key"]] = line
            file.write(json.dumps(line) + "\n")
            file.flush()

        service.warm_up()
        hard = {task: _hard(service, plan, task, lines, keep) for task in TASKS}
        known: dict[str, list[int]] = {task: [] for task in TASKS}

        def hard_at(task: str, place: int) -> int:
            while len(known[task]) <= place:
                known[task].append(next(hard[task]))
            return known[task][place]

        for number, job in enumerate(declared_jobs(plan, hard_at), start=1):
            if job.key not in lines:
                keep(_done(service, job, plan))
                sys.stderr.write(f"{number} of {number_of_jobs(plan)}: {job.key}\n")
                write_results(page, plan, list(lines.values()))
        write_results(page, plan, list(lines.values()))
    return 0


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, path.read_text("utf-8").splitlines() if path.exists() else [])
    return {row["key"]: row for row in rows}


def _hard(
    service: LocalService,
    plan: Plan,
    task: str,
    lines: dict[str, dict[str, Any]],
    keep: Callable[[dict[str, Any]], None],
) -> Iterator[int]:
    """Yield the positions of the problems that the frozen policy does not unlock in the screening."""
    for number in positions(task, SCREENED[task]):
        job = Job("screening", task, FROZEN, _SCREENING_SEED, number)
        if job.key not in lines:
            keep({"key": job.key, "kind": job.kind, "unlocked": service.search(job, plan.screening).unlocked})
        if lines[job.key]["unlocked"] is None:
            yield number


def _done(service: LocalService, job: Job, plan: Plan) -> dict[str, Any]:
    named = {"key": job.key, "kind": job.kind, "task": job.task, "arm": job.arm, "seed": job.seed, "number": job.number}
    if job.kind == "campaign":
        return named | service.campaign(job, plan)
    # Without learning an answer depends on no other, so the first ones are those of a smaller budget.
    found = service.search(job, plan.answers if job.arm != FROZEN else plan.answers * plan.patience)
    return named | {
        "unlocked": found.unlocked,
        "answers": found.answers,
        "seconds": round(found.seconds, 3),
        "steps": found.state.step,
        "flat": found.state.flat,
        "seen": found.state.seen,
        "ended": found.state.ended,
    }


if __name__ == "__main__":
    raise SystemExit(main())
