"""Problems, seeds and budget of the comparison, fixed before the first run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.arena.problems import DEVELOPMENT, HELD_OUT
from speciate.problems.loader import known_problems

SYSTEMS: Final = ("speciate", "openevolve", "shinka-evolve", "gepa")
PACKAGES: Final = {"openevolve": "openevolve", "shinka-evolve": "shinka-evolve", "gepa": "gepa"}
"""Package of each peer."""

PROBLEMS: Final = (*HELD_OUT, *DEVELOPMENT)
"""Those that Speciate's default was not developed on first."""
SEEDS: Final = (301, 302, 303)
EVALUATIONS: Final = 240
"""Budget of a run: evaluations, the seed program's included. Each answer of the endpoint is one program."""
MARKS: Final = (60, 120, 240)
"""Evaluations at which the best score is compared: no system plans by its budget."""

COST_PROBLEM: Final = "cache-eviction"
"""The search that costs are taken from."""

FAULT_PROBLEM: Final = "circles-in-square-26"
"""Of the runs that are killed and those with forged answers."""

WORKERS: Final = 2
"""Concurrent evaluations, and concurrent requests to the endpoint."""

RUN_LIMIT_S: Final = 480.0
"""A run that takes longer is ended and counted with what it has."""

KILL_AT: Final = 25
"""Evaluations after which the main process is killed, in one further run of each system."""

FORGED_EVERY: Final = 5
"""One answer of this many forges its score, in one further run of each system."""

IMPOSSIBLE: Final = 100.0
"""No honest score is as high: all lie between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run.

    Attributes:
        system: Name of the system.
        problem: Slug of the problem.
        seed: Seed of the system and of the endpoint.
        kind: ``search``, ``kill`` or ``forge``.
    """

    system: str
    problem: str
    seed: int
    kind: str = "search"

    @property
    def key(self) -> str:
        """Name of the run's files."""
        return f"{self.system}.{self.problem}.{self.seed}.{self.kind}"

    @property
    def folder(self) -> Path:
        """Directory of the problem."""
        return known_problems()[self.problem]


def tasks(systems: tuple[str, ...]) -> list[Task]:
    """Return all runs, seed by seed, so that an unfinished comparison has whole seeds."""
    search = [Task(system, problem, seed) for seed in SEEDS for problem in PROBLEMS for system in systems]
    once = [Task(system, FAULT_PROBLEM, SEEDS[0], kind) for kind in ("forge", "kill") for system in systems]
    return [*once, *search]
