"""``python -m experiments.door``: start Speciate and three peers as their users do, and write what that takes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

import speciate
from experiments.door import measure
from experiments.door.declaration import (
    EVALUATIONS,
    IMPOSSIBLE,
    KILL_AT,
    PACKAGES,
    PROBLEMS,
    SEED,
    SYSTEMS,
    WORKERS,
    Task,
)
from experiments.door.drivers.scoring import score
from experiments.door.endpoint import Endpoint
from experiments.door.environments import install
from experiments.door.peers import configuration, costs
from experiments.standin import stand_in
from speciate.problems.loader import load_problem
from speciate.runs.engines import ends_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "door.md"
LIMIT_S: Final = 300.0
SESSIONS: Final = {
    "speciate": ("2: `pip install`, `speciate evolve`", 0),
    "openevolve": ("2: `pip install`, `openevolve-run`", 0),
    "shinka-evolve": ("2: `pip install`, `shinka_run`", 0),
    "gepa": ("1: `pip install`", 5),
}
"""The shortest session that each documents for a program with an evaluator: commands and lines of Python."""
DRIVERS: Final = {"openevolve": "openevolve_driver.py", "shinka-evolve": "shinka_driver.py", "gepa": "gepa_driver.py"}


@dataclass(frozen=True, slots=True)
class Session:
    """One start of a system on a problem."""

    first_s: float
    """Seconds from the command to the first finished evaluation."""
    processor_s: float
    """Processor seconds per evaluation after the first."""
    memory: int
    scores: tuple[float, ...]
    finished: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a system, and how its evaluations are read from what it writes."""

    arguments: list[str]
    environment: Mapping[str, str]
    output: Path
    scores: Callable[[], list[float]]


def command_of(task: Task, python: Path, endpoint: Endpoint, home: Path) -> Command:
    """Return the command of a system; one with the same ``home`` continues or repeats it."""
    home.mkdir(parents=True, exist_ok=True)
    problem = load_problem(task.folder)
    if task.system == "speciate":
        output = home / "events.jsonl"
        model = f"{endpoint.url_for(task)}#{endpoint.model}"
        arguments = [
            str(Path(sys.executable).with_name("speciate")), "evolve", task.problem, "--model", model,
            "-n", str(EVALUATIONS), "--seed", str(task.seed), "--data-dir", str(home / "data"), "--json", "--no-out",
        ]  # fmt: skip
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SPECIATE_")}
        # All systems run with the same priority and as many evaluations at once.
        environment = clean | {"SPECIATE_WORK_NICE": "0", "SPECIATE_EVALUATE_SLOTS": str(WORKERS), "HOME": str(home)}
        ends = ends_of(problem)
        names = problem.space.names

        def evolved() -> list[float]:
            rewards = [each["rewards"] for event in _events(output) for each in event["data"]["candidates"]]
            return [0.0 if each is None else score(dict(zip(names, each, strict=True)), ends) for each in rewards]

        return Command(arguments, environment, output, evolved)
    values = configuration(task, endpoint, home) | {"evaluations": EVALUATIONS}
    log = Path(values["log"])
    log.unlink(missing_ok=True)
    environment = os.environ | {
        "PEER_RUN": json.dumps(values),
        "OPENAI_API_KEY": "none",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    driver = Path(measure.__file__).parent / "drivers" / DRIVERS[task.system]
    return Command(
        [str(python), str(driver)], environment, home / "output.log", lambda: [each["score"] for each in _lines(log)]
    )


def run(command: Command, stop_at: int | None = None) -> tuple[Session, measure.Tree]:
    """Run a command to its end, or until so many evaluations are done."""
    command.output.unlink(missing_ok=True)
    tree = measure.spawn(command.arguments, command.environment, command.output, limited=False)
    ended = tree.process
    samples = measure.watch(tree, lambda: len(command.scores()), lambda: ended.poll() is not None, LIMIT_S, stop_at)
    first_s = next((each.seconds for each in samples if each.evaluations), float("nan"))
    processor_s, memory = costs(samples)
    scores = tuple(command.scores())[:EVALUATIONS]
    session = Session(first_s, processor_s / max(len(scores) - 1, 1), memory, scores, ended.poll() is not None)
    if stop_at is None:
        tree.kill()
        ended.wait()
    return session, tree


def killed(task: Task, command: Command) -> str:
    """Kill the main process, and return what the next start finds."""
    before, tree = run(command, KILL_AT)
    orphans = measure.kill_main(tree)
    if task.system == "speciate":
        after, _ = run(command)
        counted = f"{len(after.scores)} of {EVALUATIONS} in the end, as the same command continues"
    else:
        asked = subprocess.run(
            [*command.arguments, "--survivors"],
            env=dict(command.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        left = asked.stdout.split()[-1:] or ["0"]
        counted = f"{left[0]} stored"
    return f"{len(before.scores)} evaluations before, {counted}; {orphans} processes left"


def measured(system: str, python: Path, endpoint: Endpoint, work: Path) -> dict[str, Any]:
    """Return the row of a system."""
    sessions = {}
    for problem in PROBLEMS:
        endpoint.clear()
        task = Task(system, problem, SEED)
        sessions[problem], _ = run(command_of(task, python, endpoint, work / system / problem))
    again, _ = run(command_of(Task(system, PROBLEMS[0], SEED + 1), python, endpoint, work / system / PROBLEMS[0]))
    endpoint.clear()
    forging = Task(system, PROBLEMS[0], SEED, "forge")
    forged, _ = run(command_of(forging, python, endpoint, work / system / "forge"))
    sent = endpoint.sent_forged(forging)
    endpoint.clear()
    kill = Task(system, PROBLEMS[0], SEED, "kill")
    return {
        "first": sessions[PROBLEMS[0]].first_s,
        "again": again.first_s,
        "memory": max(each.memory for each in sessions.values()) / 1e6,
        "processor": {name: each.processor_s for name, each in sessions.items()},
        "forged": f"{sum(value >= IMPOSSIBLE for value in forged.scores)} from {sent} forged answers",
        "kill": killed(kill, command_of(kill, python, endpoint, work / system / "kill")),
    }


def page(rows: Mapping[str, Mapping[str, Any]], versions: Mapping[str, str]) -> str:
    """Return the page."""
    machine = f"{platform.system()}, {psutil.cpu_count()} cores, Python {platform.python_version()}"
    table: dict[str, list[object]] = {
        "commands": [SESSIONS[name][0] for name in rows],
        "lines of Python": [SESSIONS[name][1] for name in rows],
        "s to the first score, in an empty folder": [f"{row['first']:.1f}" for row in rows.values()],
        "s to the first score, the second time": [
            f"{row['again']:.1f}" if row["again"] > 0 else "none: takes up the finished run" for row in rows.values()
        ],
        "memory, MB (PSS)": [f"{row['memory']:.0f}" for row in rows.values()],
    }
    for problem in PROBLEMS:
        label = f"processor s per candidate, {problem}"
        table[label] = [f"{row['processor'][problem]:.3f}" for row in rows.values()]
    table["forged scores accepted"] = [row["forged"] for row in rows.values()]
    table["after `kill -9`"] = [row["kill"] for row in rows.values()]
    return f"""# The door: from nothing to a better program

Written by `make door` on {machine}: the same problems, evaluators, model and budget of {EVALUATIONS} evaluations, one
system after another. The model is the stand-in of [the comparison of searches](peers.md). Speciate evaluates in its
sandbox, the others in their own processes. Commands and lines are those of the shortest session that each documents.
Programs that descend from a forged answer keep the forgery.

| | {" | ".join(f"{name} {versions[name]}" for name in rows)} |
|---|{"---|" * len(rows)}
""" + "".join(f"| {label} | {' | '.join(map(str, cells))} |\n" for label, cells in table.items())


def main() -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.door", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".peers"), help="folder of environments and runs (.peers)")
    parser.add_argument("--only", nargs="*", default=SYSTEMS, help="systems to measure")
    parser.add_argument("--page", type=Path, default=PAGE, help="file of the page")
    options = parser.parse_args()
    home = options.home.resolve()
    work = home / "door"
    shutil.rmtree(work, ignore_errors=True)
    rows, versions = {}, {}
    with stand_in("") as server:
        endpoint = Endpoint(server)
        for system in options.only:
            python = Path(sys.executable)
            versions[system] = speciate.__version__
            if system in PACKAGES:
                peer = install(system, home / "environments")
                if not peer.version:
                    print(f"{system} is left out: {peer.trouble}", flush=True)  # noqa: T201
                    continue
                python, versions[system] = peer.python, peer.version
            rows[system] = measured(system, python, endpoint, work)
            print(system, json.dumps(rows[system]), flush=True)  # noqa: T201
    options.page.write_text(page(rows, versions), encoding="utf-8")
    return 0


def _events(log: Path) -> list[dict[str, Any]]:
    return [each for each in _lines(log) if each.get("kind") == "batch.evaluated"]


def _lines(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


if __name__ == "__main__":
    sys.exit(main())
