"""Speciate's own files stay out of reach where its package, or its checkout, lies among what candidates may read."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.canary import probe_tier
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.errors import EvaluatorUnavailableError
from tests.sandbox.arenas import NOT_TRIED, ROOT, make_problem

_SERVE = """
import json, sys
from contextlib import closing
from evaluators.evaluator import SandboxEvaluator
from evaluators.canary import probe_tier
from tests.sandbox.arenas import ROOT, make_problem
tier, program = sys.argv[1:3]
verdict = probe_tier(tier)
cases = [{"input": [path], "expected": 0} for path in sys.argv[3:]]
problem = make_problem(cases=cases, data_files={"shown.txt": "0"})
with closing(SandboxEvaluator(tier)) as sandbox:
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
print(json.dumps([str(ROOT), verdict.breaches, verdict.remedy, evaluation.artifacts.get("cases"), str(evaluation)]))
"""
_READ = """
import beside
def solve(path):
    try:
        return open(path).read(1)
    except OSError:
        return beside.VALUE + int(open("data/shown.txt").read())
"""


@pytest.fixture(params=["/var/tmp", "/tmp"])
def place(request):
    """A folder for the copy; every candidate of tier A has a ``/tmp`` of its own, which must not cover it."""
    with tempfile.TemporaryDirectory(prefix="speciate-installed-", dir=request.param) as folder:
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
    field_errors, _, failed, evaluation = read("", BUNDLED, "speciate/__init__.py")
    assert field_errors == []
    assert failed is None, failed
    assert "rewards=(1.0,)" in evaluation


def test_a_checkout_among_what_can_be_read_cannot(read):
    field_errors, _, failed, evaluation = read("source", BUNDLED, "pyproject.toml", "evaluators/evaluator.py")
    assert field_errors == []
    assert failed is None, failed
    assert "rewards=(1.0,)" in evaluation


_CHANGE = """
import beside, os
def solve(_):
    assert beside.VALUE == 0
    for change in (lambda: open(os.path.dirname(beside.__file__) + "/new", "w"), lambda: os.remove(beside.__file__)):
        try:
            change()
        except OSError:
            continue
        return 1
    return 0
"""


@pytest.mark.parametrize("tier", ["A", "B"])
def test_packages_beneath_tmp_are_there_and_stay_as_they_are(tier, monkeypatch):
    if not probe_tier(tier).holds:
        pytest.skip(f"{NOT_TRIED}tier {tier}: {probe_tier(tier).breaches}")
    with tempfile.TemporaryDirectory(prefix="speciate-packages-", dir="/tmp") as folder:
        site = Path(folder, "site-packages")
        site.mkdir()
        site.joinpath("beside.py").write_text("VALUE = 0\n")
        Path(folder).chmod(0o755)
        site.chmod(0o777)
        monkeypatch.syspath_prepend(site)
        problem = make_problem(cases=[{"input": [0], "expected": 0}])
        with closing(SandboxEvaluator(tier)) as sandbox:
            (evaluation,) = sandbox.evaluate(problem, [_CHANGE], seeds=[0])
        assert evaluation.rewards == (1.0,), evaluation
        assert [path.name for path in site.iterdir() if path.suffix] == ["beside.py"]


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_tier_that_shows_them_is_refused_with_what_to_do(tier, monkeypatch):
    if not probe_tier(tier).holds:
        pytest.skip(f"{NOT_TRIED}tier {tier}: {probe_tier(tier).breaches}")
    monkeypatch.setattr("evaluators.canary.hidden_files", lambda: (json.__file__,))
    verdict = probe_tier.__wrapped__(tier)
    assert not verdict.holds
    assert json.__file__ in verdict.breaches[0]
    assert "Move the checkout" in verdict.remedy


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_tier_holds_where_nothing_but_tmp_can_be_written_as_in_a_container(tier):
    if not probe_tier(tier).holds:
        pytest.skip(f"{NOT_TRIED}tier {tier}: {probe_tier(tier).breaches}")
    if not probe_tier("A").holds:
        pytest.skip(f"{NOT_TRIED}a read-only root, which bubblewrap has to make: {probe_tier('A').breaches}")
    whole = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--bind", "/tmp", "/tmp"]
    look = f"from evaluators.canary import probe_tier; print(probe_tier({tier!r}).breaches)"
    ran = subprocess.run(
        ["bwrap", *whole, sys.executable, "-c", look],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert (ran.stdout, ran.stderr) == ("()\n", "")


_PRY = """
import ctypes, os, socket, subprocess
REACHED = []
for name, reach in {
    "a password file": lambda: open("/etc/passwd"),
    "its own folder": lambda: open(os.path.dirname(__file__) + "/new", "w"),
    "a shared folder": lambda: open("/var/tmp/speciate-preloaded", "w"),
    "another program": lambda: subprocess.run(["true"]),
    "the network": lambda: socket.create_connection(("127.0.0.1", PORT), 1),
}.items():
    try:
        reach()
    except OSError:
        continue
    REACHED.append(name)
"""


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_preloaded_module_is_contained(tier, monkeypatch):
    if not probe_tier(tier).holds:
        pytest.skip(f"{NOT_TRIED}tier {tier}: {probe_tier(tier).breaches}")
    with (
        tempfile.TemporaryDirectory(prefix="speciate-packages-", dir="/tmp") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        site = Path(folder, "site-packages")
        site.mkdir()
        site.joinpath("prying.py").write_text(_PRY.replace("PORT", str(server.getsockname()[1])))
        Path(folder).chmod(0o755)
        site.chmod(0o777)
        monkeypatch.syspath_prepend(site)
        reached = ["another program"] if tier == "A" else []  # behind bubblewrap's view
        problem = make_problem(cases=[{"input": [0], "expected": reached}], preload=["prying"])
        with closing(SandboxEvaluator(tier)) as sandbox:
            program = "import prying\ndef solve(x): return prying.REACHED"
            (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
        assert evaluation.rewards == (1.0,), evaluation


@pytest.mark.parametrize("text", ["import os; os._exit(0)", "raise SystemExit(3)", "import time; time.sleep(600)"])
def test_a_preloaded_module_that_ends_or_stops_is_named(text, monkeypatch, tmp_path):
    if not probe_tier("B").holds:
        pytest.skip(f"{NOT_TRIED}tier B: {probe_tier('B').breaches}")
    monkeypatch.setattr("evaluators.tiers.zygote._START_S", 3)
    with tempfile.TemporaryDirectory(prefix="speciate-packages-", dir="/tmp") as folder:
        site = Path(folder, "site-packages")
        site.mkdir()
        site.joinpath("stopping.py").write_text(text)
        Path(folder).chmod(0o755)
        monkeypatch.syspath_prepend(site)
        with closing(SandboxEvaluator("B")) as sandbox, pytest.raises(EvaluatorUnavailableError, match="stopping"):
            sandbox.evaluate(make_problem(preload=["stopping"]), ["def solve(x): return x"], seeds=[0])
