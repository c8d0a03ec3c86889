"""Systems, problems and limits of the measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speciate.problems.loader import known_problems

SYSTEMS: Final = ("speciate", "openevolve", "shinka-evolve", "gepa")
PACKAGES: Final = {"openevolve": "openevolve", "shinka-evolve": "shinka-evolve", "gepa": "gepa"}
"""Package of each peer."""

COST_PROBLEM: Final = "cache-eviction"
PROBLEMS: Final = ("circles-in-square-26", COST_PROBLEM, "job-scheduling")
EVALUATIONS: Final = 60
SEED: Final = 401

WORKERS: Final = 2
"""Concurrent evaluations, and concurrent requests to the endpoint."""

KILL_AT: Final = 25
"""Evaluations after which the main process is killed, in one further run of each system."""

IMPOSSIBLE: Final = 100.0
"""No honest score is as high: all lie between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run; ``kind`` is ``search``, ``kill`` or ``forge``."""

    system: str
    problem: str
    seed: int
    kind: str = "search"

    @property
    def folder(self) -> Path:
        return known_problems()[self.problem]
