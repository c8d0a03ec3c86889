"""Run one peer on one problem, in its own environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from experiments.peers import measure
from experiments.peers.declaration import EVALUATIONS, IMPOSSIBLE, KILL_AT, RUN_LIMIT_S, WORKERS, Task
from experiments.peers.endpoint import Endpoint
from experiments.peers.result import Result, costs, gains_of
from speciate.domain.objective import Direction, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.problems.loader import load_problem

_DRIVERS: Final = Path(__file__).parent / "drivers"
_SCRIPTS: Final = {
    "openevolve": "openevolve_driver.py", "shinka-evolve": "shinka_driver.py", "gepa": "gepa_driver.py",
}  # fmt: skip
_TIMEOUT_S: Final = 20
_TEMPERATURE: Final = 0.8


def ends_of(problem: Problem) -> dict[str, dict[str, float]]:
    """Return what ``drivers.scoring.score`` needs of the objectives; records are left out."""
    ends: dict[str, dict[str, float]] = {}
    for objective in problem.objectives:
        low, high = objective.range
        if objective.role is ObjectiveRole.CONSTRAINT:
            ends[objective.name] = {"limit": objective.limit}
        elif objective.role is ObjectiveRole.OBJECTIVE:
            down = objective.direction is Direction.MINIMIZE
            ends[objective.name] = {"low": high, "high": low} if down else {"low": low, "high": high}
    return ends


def configuration(task: Task, endpoint: Endpoint, home: Path) -> dict[str, Any]:
    """Return the values of a run for its driver."""
    problem = load_problem(task.folder)
    initial = home / "initial.py"
    initial.write_text(problem.seed_program, encoding="utf-8")
    return {
        "problem": str(task.folder),
        "files": problem.files,
        "description": problem.description,
        "objectives": ends_of(problem),
        "initial": str(initial),
        "output": str(home / "output"),
        "log": str(home / "evaluations.jsonl"),
        "url": endpoint.url_for(task),
        "model": endpoint.model,
        "temperature": _TEMPERATURE,
        "seed": task.seed,
        "evaluations": EVALUATIONS,
        "workers": WORKERS,
        "timeout_s": _TIMEOUT_S,
    }


def run_peer(task: Task, python: Path, endpoint: Endpoint, work: Path) -> Result:
    """Run a peer to its end, its limit or its kill, and return what its evaluations logged."""
    home = work / task.key
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    values = configuration(task, endpoint, home)
    log = Path(values["log"])
    environment = {
        **os.environ, "PEER_RUN": json.dumps(values), "OPENAI_API_KEY": "none", "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{python.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    command = [str(python), str(_DRIVERS / _SCRIPTS[task.system])]
    tree = measure.spawn(command, environment, home / "output.log", limited=True)
    process = tree.process
    stop_at = KILL_AT if task.kind == "kill" else None
    samples = measure.watch(tree, lambda: len(_lines(log)), lambda: process.poll() is not None, RUN_LIMIT_S, stop_at)
    finished = process.poll() is not None
    orphans = measure.kill_main(tree) if task.kind == "kill" else 0
    tree.kill()
    process.wait()
    survivors = None
    if task.kind == "kill":
        asked = subprocess.run([*command, "--survivors"], env=environment, capture_output=True, text=True, check=False)
        survivors = int(asked.stdout.split()[-1]) if asked.returncode == 0 and asked.stdout.split() else 0
    scores = [json.loads(line)["score"] for line in _lines(log)][:EVALUATIONS]
    seconds, processor_s, halves, memory = costs(samples)
    return Result(
        task.system, task.problem, task.seed, task.kind, len(scores), gains_of(scores), seconds, processor_s, halves,
        memory, finished,
        sum(score >= IMPOSSIBLE for score in scores), endpoint.sent_forged(task), survivors, len(scores), orphans,
        endpoint.tokens(task), _trouble(process.returncode, finished=finished),
    )  # fmt: skip


def _lines(log: Path) -> list[str]:
    if not log.exists():
        return []
    return [line for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def _trouble(code: int, *, finished: bool) -> str:
    if not finished:
        return "ended by us"
    return f"exit code {code}" if code else ""
