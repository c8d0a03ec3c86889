"""Register problems: check that a worker can score the seed program, then store the problem."""

from __future__ import annotations

from service.dependencies import AppState
from speciate.domain.problem import Problem
from speciate.schema.problems import ProblemVersion
from speciate.storage.stores import Stores


def register(problem: Problem, app_state: AppState, stores: Stores, *, check: bool) -> tuple[ProblemVersion, bool]:
    """Store a problem, after a check unless this version exists already. Blocks."""
    if check and not stores.catalog.has_problem(problem):
        app_state.seed_checks.require(problem)
    return stores.catalog.add_problem(problem)
