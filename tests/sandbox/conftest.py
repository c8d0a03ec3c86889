"""What every attack is checked for: nothing survives, nothing is left behind, and the next evaluation is right."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.broker import Broker
from evaluators.tiers import TIERS
from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem

GOOD = "def solve(x):\n    return 2 * x\n"
EXPECTED = [{"input": [i], "expected": 2 * i} for i in range(4)]

Attack = Callable[..., Evaluation]


def make_problem(**fields: object) -> Problem:
    return Problem.model_validate(
        {
            "slug": "attacked",
            "title": "Attacked",
            "kind": "cases",
            "objectives": [{"name": "score"}],
            "targets": [{"name": "all", "rule": "score >= 1", "unlock": True}],
            "cases": EXPECTED,
            "limits": {"wall_s": 1.0, "cpu_s": 1.0, "log_bytes": 4096},
            **fields,
        }
    )


def processes_with(mark: bytes) -> list[str]:
    """Return the command lines of processes whose environment, command line or working directory holds ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            place = os.fsencode((entry / "cwd").readlink())
            if mark in command + (entry / "environ").read_bytes() + place:
                found.append(f"{entry.name}: {command!r}")
        except OSError:
            continue
    return found


SCRIPT = """
def evaluate(candidate, context):
    return {"score": sum(candidate.call("solve", i).unwrap() == 2 * i for i in range(4)) / 4}
"""


@pytest.fixture
def sandbox_problem() -> Callable[..., Problem]:
    """Make a problem of kind ``cases`` or ``evaluator`` that ``2 * x`` solves."""

    def make(kind: str = "cases", **fields: object) -> Problem:
        own = {"cases": [], "evaluator": SCRIPT} if kind == "evaluator" else {}
        return make_problem(kind=kind, **own, **fields)

    return make


@pytest.fixture
def marked() -> Callable[[bytes], list[str]]:
    """Find processes by what their environment, command line or working directory holds."""
    return processes_with


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own place for temporary directories; nothing may be left there, and nobody who knows it may live on."""
    space = tmp_path / "space"
    space.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(space))
    yield space
    assert list(space.iterdir()) == []
    _until(lambda: processes_with(os.fsencode(space)) == [])


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(params=list(TIERS))
def broker(request: pytest.FixtureRequest, space: Path) -> Iterator[Broker]:
    with closing(Broker(request.param, author_grace_s=10)) as broker:
        yield broker


@pytest.fixture
def attack(broker: Broker, space: Path) -> Attack:
    """Evaluate a hostile program and check that the world is as before, and that a good one still passes."""

    def evaluate(program: str, **fields: object) -> Evaluation:
        patient = make_problem(limits={"wall_s": 20})
        broker.evaluate(patient, [GOOD], seeds=[0])
        zygotes = processes_with(os.fsencode(space))
        (evaluation,) = broker.evaluate(make_problem(**fields), [program], seeds=[0])
        _until(lambda: processes_with(os.fsencode(space)) == zygotes)
        assert list(space.iterdir()) == []
        (good,) = broker.evaluate(patient, [GOOD], seeds=[0])
        assert good.rewards == (1.0,), good
        return evaluation

    return evaluate
