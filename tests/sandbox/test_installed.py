"""Speciate's own files stay out of reach where its package, or its checkout, lies among what candidates may read."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluators.canary import examine
from tests.sandbox.arenas import NOT_TRIED, ROOT

_SERVE = """
import json, sys
from contextlib import closing
from evaluators.broker import Broker
from evaluators.canary import examine
from tests.sandbox.arenas import ROOT, make_problem
tier, program = sys.argv[1:3]
verdict = examine(tier)
cases = [{"input": [path], "expected": 0} for path in sys.argv[3:]]
problem = make_problem(cases=cases, data_files={"shown.txt": "0"})
with closing(Broker(tier)) as broker:
    (evaluation,) = broker.evaluate(problem, [program], seeds=[0])
print(json.dumps([str(ROOT), verdict.flaws, verdict.remedy, evaluation.artifacts.get("cases"), str(evaluation)]))
"""
_READ = """
import beside
def solve(path):
    try:
        return open(path).read(1)
    except OSError:
        return beside.VALUE + int(open("data/shown.txt").read())
"""


@pytest.fixture
def place():
    """A folder that is not in ``/tmp``, which tier A covers."""
    with tempfile.TemporaryDirectory(prefix="speciate-installed-", dir="/var/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        yield place


@pytest.fixture(params=["A", "B"])
def read(request, place):
    """Install a copy and return what the canary and a candidate could read of it."""

    def read(folder, *files):
        site = place / "site-packages"
        copy = site / folder
        for name in ("speciate", "evaluators", "tests/sandbox"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        if folder:
            shutil.copy(ROOT / "pyproject.toml", copy)
        (site / "beside.py").write_text("VALUE = 0\n")
        done = subprocess.run(
            [sys.executable, "-c", _SERVE, request.param, _READ, *(str(copy / file) for file in files)],
            env=os.environ | {"PYTHONPATH": f"{copy}:{site}"},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if "EvaluatorUnavailableError" in done.stderr:
            pytest.skip(f"{NOT_TRIED}tier {request.param} of an installed copy: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr
        root, *found = json.loads(done.stdout)
        assert root == str(copy)
        return found

    return read


BUNDLED = "speciate/problems/bundled/planck-radiation/points.json"


def test_bundled_problems_beside_other_packages_cannot_be_read(read):
    flaws, _, failed, evaluation = read("", BUNDLED, "speciate/__init__.py")
    assert flaws == []
    assert failed is None, failed
    assert "rewards=(1.0,)" in evaluation


def test_a_checkout_among_what_can_be_read_cannot(read):
    flaws, _, failed, evaluation = read("source", BUNDLED, "pyproject.toml", "evaluators/broker.py")
    assert flaws == []
    assert failed is None, failed
    assert "rewards=(1.0,)" in evaluation


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_tier_that_shows_them_is_refused_with_what_to_do(tier, monkeypatch):
    if not examine(tier).holds:
        pytest.skip(f"{NOT_TRIED}tier {tier}: {examine(tier).flaws}")
    monkeypatch.setattr("evaluators.canary.own_files", lambda: (json.__file__,))
    verdict = examine.__wrapped__(tier)
    assert not verdict.holds
    assert json.__file__ in verdict.flaws[0]
    assert "move its checkout" in verdict.remedy
