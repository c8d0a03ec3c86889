"""Expected outputs, the author's script and the worker's secrets are nowhere in what a candidate is given.

The candidate is told the digest of a secret and looks for the secret itself: in its arguments and environment, the
files around it, and all memory of its process and of its supervisor.
"""

import hashlib
from pathlib import Path

import pytest

from evaluators.broker import Broker

PROBE = r"""
import hashlib, os, re, sys

def everything():
    yield repr((sys.argv, dict(os.environ), sys.path, os.listdir("/proc/self/fd"))).encode()
    for place, _, files in os.walk("."):
        for name in files:
            yield open(os.path.join(place, name), "rb").read()
    for pid in (os.getpid(), os.getppid()):
        for name in ("cmdline", "environ"):
            yield open(f"/proc/{pid}/{name}", "rb").read()
        for line in open(f"/proc/{pid}/maps"):
            span, mode = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            if mode.startswith("r") and "[v" not in line:
                with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                    memory.seek(low)
                    yield memory.read(min(high - low, 1 << 26))

def solve(digest):
    for text in everything():
        for word in set(re.findall(rb"sesame-[a-z]+-\d+", text)):
            if hashlib.sha256(word).hexdigest() == digest:
                return word.decode()
    return "nothing"
"""

SECRET = "sesame-" + "expected-271828"


def digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


@pytest.fixture
def limits():
    return {"wall_s": 30, "cpu_s": 30}


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_the_probe_finds_what_is_there(attack, limits):
    program = PROBE + "\nvisible = 'sesame-visible-314159'\n"
    cases = [{"input": [digest("sesame-visible-314159")], "expected": "sesame-visible-314159"}]
    assert attack(program, cases=cases, limits=limits).rewards == (1.0,)


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_expected_outputs_are_not_there(attack, limits):
    cases = [{"input": [digest(SECRET)], "expected": SECRET}]
    evaluation = attack(PROBE, cases=cases, limits=limits)
    assert evaluation.rewards == (0.0,)
    assert 'got "nothing"' in evaluation.artifacts["cases"]


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_the_workers_environment_is_not_there(attack, limits, monkeypatch):
    monkeypatch.setenv("SPECIATE_DATABASE_URL", "postgresql://user:sesame-password-161803@/db")
    cases = [{"input": [digest("sesame-password-161803")], "expected": "nothing"}]
    assert attack(PROBE, cases=cases, limits=limits).rewards == (1.0,)


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_the_authors_script_and_files_are_not_there(attack, limits):
    script = (
        "import hashlib\n"
        "WORDS = ['sesame-script-141421', 'sesame-file-173205']\n"
        "def evaluate(candidate, context):\n"
        "    assert context.files['truth.txt'] == WORDS[1]\n"
        "    found = [candidate.call('solve', hashlib.sha256(w.encode()).hexdigest()).unwrap() for w in WORDS]\n"
        "    return {'score': found.count('nothing') / 2}\n"
    )
    evaluation = attack(
        PROBE, kind="evaluator", cases=[], evaluator=script, files={"truth.txt": "sesame-file-173205"}, limits=limits
    )
    assert evaluation.rewards == (1.0,)


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_only_the_channel_and_the_standard_streams_are_open(attack):
    program = "import os\ndef solve():\n    return sorted(map(int, os.listdir('/proc/self/fd')))\n"
    cases = [{"input": [], "expected": [0, 1, 2, 3, 4]}]  # the last is the listing's own
    with Path("/dev/null").open() as handle:
        assert handle.fileno() > 2
        assert attack(program, cases=cases).rewards == (1.0,)


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_nothing_of_one_candidate_reaches_the_next(broker: Broker, sandbox_problem):
    first = "import builtins, os\nbuiltins.leak = os.environ['LEAK'] = 'x'\nopen('left', 'w').write('x')\n"
    then = (
        "import builtins, os\n"
        "def solve():\n    return [hasattr(builtins, 'leak'), 'LEAK' in os.environ, os.listdir('.')]\n"
    )
    problem = sandbox_problem(cases=[{"input": [], "expected": [False, False, []]}])
    leaking, following = broker.evaluate(problem, [first + then, then], seeds=[0, 0])
    assert leaking.rewards == (0.0,)
    assert following.rewards == (1.0,)
