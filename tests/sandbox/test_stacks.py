"""Packages of the scientific stack compute inside the walls; ``python -m benchmarks.stacks`` tries those that are large."""

import importlib.util

import pytest

from benchmarks.stacks.__main__ import problem_of
from benchmarks.stacks.computations import COMPUTATIONS
from tests.sandbox.arenas import Arena

INSTALLED = {
    name: which for name, which in COMPUTATIONS.items() if importlib.util.find_spec(which.module.partition(".")[0])
}


@pytest.fixture(params=["A as root", "B as root"])
def one_user(request, enter) -> Arena:
    return enter(request.param)


@pytest.mark.parametrize("name", INSTALLED)
def test_it_computes_when_it_is_imported_late(one_user, name):
    """One program; whatever else a package does, all limits are the defaults but those of time."""
    problem = problem_of(INSTALLED[name], installed=True, preload=False)
    (evaluation,) = one_user.evaluate(problem, [INSTALLED[name].program])
    assert evaluation.rewards == (1.0,), evaluation


@pytest.mark.parametrize("name", ["numpy", "scipy", "networkx"])
def test_it_computes_when_it_is_preloaded(one_user, name):
    problem = problem_of(INSTALLED[name], installed=True, preload=True, cores=2)
    (evaluation,) = one_user.evaluate(problem, [INSTALLED[name].program])
    assert evaluation.rewards == (1.0,), evaluation
