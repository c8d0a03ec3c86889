"""Expected outputs, the author's script and the worker's secrets are nowhere in what a candidate can read.

The candidate receives the digest of a secret and looks for the secret itself: in its arguments and environment, in every
file it can open, and in all of its own memory. Memory is read without ``/proc``: a page is written into a pipe, which
the kernel refuses, rather than kills for, where there is no page.
"""

import hashlib

import pytest

from evaluators.tiers.launch import environment
from tests.sandbox.arenas import SECRET, make_problem

PROBE = r"""
import ctypes, gc, hashlib, os, re, resource, sys

WORDS = re.compile(rb"sesame-[a-z]+-\d+")
libc = ctypes.CDLL(None, use_errno=True)
PAGE = resource.getpagesize()
DIGEST = {digest!r}

def files():
    yield repr((sys.argv, dict(os.environ), sys.path)).encode()
    for place in (".", "/tmp", "/dev/shm", "/proc/self", "/proc/1", f"/proc/{{os.getppid()}}", "/etc", "/folders", "/run"):
        for folder, _, names in os.walk(place):
            for name in names[:200]:
                if name in ("mem", "kmsg", "clear_refs"): continue
                path = os.path.join(folder, name)
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                except OSError:
                    continue
                try: yield os.read(fd, 1 << 20)
                except OSError: pass
                finally: os.close(fd)

def memory():
    # From everything that is known to live somewhere, walk to both sides until nothing is mapped for a while.
    known = {{id(each) // PAGE for each in gc.get_objects()}} | {{id(sys.modules) // PAGE, ctypes.addressof(ctypes.c_int()) // PAGE}}
    known.add(ctypes.cast(libc.sbrk(0) & 0xffffffffffff, ctypes.c_void_p).value // PAGE - 1)
    known |= {{ctypes.cast(f, ctypes.c_void_p).value // PAGE for f in (libc.malloc, libc.environ)}}
    known.add(ctypes.cast(libc.environ, ctypes.POINTER(ctypes.c_void_p))[0] // PAGE)
    r, w = os.pipe()
    seen = set()
    for start in sorted(known):
        for step in (1, -1):
            at, gap = start, 0
            while gap < 64 and at > 0:
                if at in seen:
                    gap = 0 if step < 0 else gap
                    at += step
                    if at not in known and at in seen: continue
                    continue
                seen.add(at)
                if libc.write(w, ctypes.c_void_p(at * PAGE), PAGE) == PAGE:
                    gap = 0
                    yield os.read(r, PAGE)
                else:
                    gap += 1
                at += step

def found(texts):
    before = b""
    for text in texts:
        for word in WORDS.findall(before[-64:] + text):
            if hashlib.sha256(word).hexdigest() == DIGEST:
                return True
        before = text
    return False

def solve(x):
    return [found(files()), found(memory())]
"""

PATIENT = {"wall_s": 60, "cpu_s": 60, "memory_bytes": 1 << 30}


def probe(word, extra=""):
    return PROBE.format(digest=hashlib.sha256(word.encode()).hexdigest()) + extra


def look(arena, word, extra="", **fields):
    """Return where a candidate has found a word: among files and the like, and in memory."""
    cases = fields.pop("cases", [{"input": [0], "expected": "nothing"}])
    (evaluation,) = arena.evaluate(make_problem(cases=cases, limits=PATIENT, **fields), [probe(word, extra)])
    assert evaluation.rewards is not None, evaluation
    return evaluation.artifacts["cases"].rpartition(" got ")[2]


HIDDEN = "[false, false]"


def test_the_probe_finds_what_is_in_memory(arena):
    joined = "visible = ''.join(['sesame-', 'visible', '-314159'])\n"
    assert look(arena, "sesame-visible-314159", joined).endswith("true]")


def test_the_probe_finds_what_is_in_a_file(arena):
    files = {"text": "sesame-shown-299792"}
    assert look(arena, "sesame-shown-299792", data_files=files).startswith("[true")


def test_expected_outputs_are_nowhere(arena):
    secret = "sesame-expected-271828"
    cases = [{"input": [0], "expected": secret}]
    assert look(arena, secret, cases=cases) == HIDDEN


def test_hidden_inputs_are_nowhere_before_they_are_asked(arena):
    secret = "sesame-input-662607"
    cases = [{"input": [0], "expected": "nothing"}, {"input": [secret], "expected": 0, "hidden": True}]
    assert look(arena, secret, cases=cases) == HIDDEN


def test_the_workers_environment_and_arguments_are_nowhere(arena):
    assert look(arena, SECRET) == HIDDEN


def test_the_authors_script_and_its_files_are_nowhere(arena):
    words = ["sesame-script-141421", "sesame-file-173205"]
    script = (
        f"WORDS = {words!r}\n"
        "def evaluate(candidate, context):\n"
        "    assert context.files['truth.txt'] == WORDS[1]\n"
        "    return {'score': float(candidate.call('solve', 0).unwrap() == [False, False])}\n"
    )
    problem = make_problem(kind="evaluator", evaluator=script, files={"truth.txt": words[1]}, limits=PATIENT)
    results = arena.evaluate(problem, [probe(word) for word in words])
    assert [each.rewards for each in results] == [(1.0,)] * 2, results


def test_other_programs_are_nowhere(arena):
    secret = "sesame-program-602214"
    problem = make_problem(cases=[{"input": [0], "expected": [False, False]}], limits=PATIENT)
    _, looking = arena.evaluate(problem, [f"# {secret}\ndef solve(x):\n    return {secret!r}\n", probe(secret)])
    assert looking.rewards == (1.0,), looking


def test_only_the_channel_and_the_standard_streams_are_open(any_arena):
    program = "import os\ndef solve():\n    found = []\n    for fd in range(1 << 16):\n        try: os.fstat(fd)\n        except OSError: continue\n        found.append(fd)\n    return found\n"
    (evaluation,) = any_arena.evaluate(make_problem(cases=[{"input": [], "expected": [0, 1, 2, 3]}]), [program])
    assert evaluation.rewards == (1.0,), evaluation


@pytest.mark.parametrize("name", ["HOME", "PATH"])
def test_the_environment_is_made_from_nothing(any_arena, name):
    program = "import os\ndef solve():\n    return sorted(os.environ)\n"
    wanted = sorted([*environment(1), "PYTHONPATH"])
    assert not [each for each in wanted if each.startswith(("SPECIATE", "LD_", "PIP_"))]
    allowed = [sorted([*wanted, *extra]) for extra in ((), ("PWD",))]
    cases = [{"input": [], "expected": wanted} for wanted in allowed]
    (evaluation,) = any_arena.evaluate(make_problem(cases=cases), [program])
    assert evaluation.rewards == (0.5,), evaluation
    assert name in wanted
