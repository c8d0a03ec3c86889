"""Messages of a candidate are parsed as hostile input: only well-formed answers count."""

from pathlib import Path

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import CASES, GOOD, PATIENT
from tests.sandbox.programs import attacks, in_solve

INVALID, CRASHED = FailureKind.INVALID_OUTPUT, FailureKind.CRASHED


def frame(body: str) -> str:
    return f"os.write(3, len({body!r}).to_bytes(4, 'big') + {body!r}.encode())"


def asked(body: str) -> str:
    """Return a line of ``solve`` that sends a frame with the number of the question in place of ``%d``."""
    made = f"({body!r} % __import__('sys')._getframe(1).f_locals['index']).encode()"
    return f"__import__('os').write(3, (lambda b: len(b).to_bytes(4, 'big') + b)({made}))"


REFUSALS = {
    "exit by exception": (in_solve("raise SystemExit(0)"), CRASHED),
    "interrupt": (in_solve("raise KeyboardInterrupt"), CRASHED),
    "exception that cannot be printed": (
        in_solve("raise E", top="class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__"),
        CRASHED,
    ),
    "exception with a long text": (in_solve("raise ValueError('x' * (1 << 26))"), CRASHED),
    "huge value": (in_solve("return [0] * (1 << 20)"), INVALID),
    "huge text": (in_solve("return 'x' * (1 << 22)"), INVALID),
    "nan": (in_solve("return float('nan')"), INVALID),
    "infinity": (in_solve("return [[float('-inf')]]"), INVALID),
    "nan of numpy": (in_solve("return numpy.array([1.0, numpy.nan])", top="import numpy"), INVALID),
    "self-containing value": (in_solve("a = []", "a.append(a)", "return a"), INVALID),
    "big int": (in_solve("return 10 ** 10000"), INVALID),
    "big int, allowed by itself": (
        in_solve("return 10 ** 10000", top="import sys\nsys.set_int_max_str_digits(0)"),
        INVALID,
    ),
    "bomb of json": (in_solve("for _ in range(900): x = [x]", "return x"), INVALID),
    "bomb of json, by objects": (in_solve("for _ in range(900): x = {'': x}", "return x"), INVALID),
    "bomb of shared parts": (in_solve("for _ in range(19): x = [x, x]", "return x"), INVALID),
    "value without end": (in_solve("return V()", top="class V:\n    def tolist(self): return V()"), INVALID),
    "object": (in_solve("return object()"), INVALID),
    "bytes": (in_solve("return b'x'"), INVALID),
    "pickle bomb": (
        in_solve("return E()", top="import os\nclass E:\n    def __reduce__(self): return os._exit, (0,)"),
        INVALID,
    ),
    "pickle": (in_solve("return pickle.dumps(x)", top="import pickle"), INVALID),
    "equal to everything": (
        in_solve("return E()", top="class E:\n    def __eq__(self, o): return True\n    __hash__ = None"),
        INVALID,
    ),
    "dict with a key that is no text": (in_solve("return {(1, 2): 3}"), INVALID),
    "raised out of the reading": (
        in_solve(
            "return E()", top="class E(dict):\n    def items(self): raise SystemExit\n    keys = __iter__ = items"
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_gives_no_value_says_why(any_arena, name):
    programs = {each: program for each, (program, _) in REFUSALS.items()}
    evaluation, (_, kind) = attacks(any_arena, programs, limits=PATIENT)[name], REFUSALS[name]
    if kind is None:  # which limit it meets first does not matter
        assert evaluation.rewards in (None, (0.0,))
    else:
        assert evaluation.failure is not None, evaluation
        assert evaluation.failure.kind is kind


_EQUAL = "    def __eq__(self, o): return True\n"
WRONG = {
    "equal to everything, and a number": f"class E(int):\n{_EQUAL}    __hash__ = int.__hash__\n",
    "equal to everything, and a text": f"class E(str):\n{_EQUAL}    __hash__ = str.__hash__\n",
    "equal to everything, and a list": f"class E(list):\n{_EQUAL}    def __init__(self, x): pass\n",
    "true for one": "def E(x): return True\n",
    "text for a number": "def E(x): return '1'\n",
    "null": "def E(x): return None\n",
    "a scorer of its own": (
        "import sys, types\n"
        "for name in ('evaluators', 'evaluators.compare', 'evaluators.cases', 'evaluators.evaluator'):\n"
        "    sys.modules[name] = types.SimpleNamespace(equal=lambda *a: True, evaluate_cases=None)\n"
        "def E(x): return -1\n"
    ),
    "patched operators": (
        "import builtins, math, operator\nbuiltins.all = builtins.any = lambda *a: True\n"
        "math.isclose = operator.eq = lambda *a, **k: True\ndef E(x): return -1\n"
    ),
    "a writer of its own": (
        "import json\njson.dumps = lambda m, **k: '{\"index\": %d, \"value\": -1}' % m['index']\ndef E(x): return x\n"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_wrong_however_it_compares(any_arena, name):
    cases = [{"input": [i], "expected": 1} for i in (2, 3, 4)]
    programs = {each: in_solve("return E(x)", top=top) for each, top in WRONG.items()}
    evaluation = attacks(any_arena, programs, cases=cases)[name]
    assert evaluation.rewards == (0.0,), evaluation


def test_the_first_frame_of_a_question_wins(any_arena):
    assert any_arena.attack(in_solve(asked('{"index": %d, "value": "forged"}'), "return 2 * x")).rewards == (0.0,)


def test_answers_that_are_given_twice_count_once(any_arena):
    twice = [{"input": [i], "expected": i} for i in range(4)]
    lines = [asked('{"index": %d, "value": 0}'), asked('{"index": %d, "value": 1}'), "return 1"]
    assert any_arena.attack(in_solve(*lines), cases=twice).rewards == (0.25,)


def test_answers_ahead_of_the_questions_do_not_count(any_arena):
    """Questions have random numbers: what is said before a question cannot be its answer."""
    cases = [{"input": [0], "expected": 0}, {"input": [1], "expected": 1, "hidden": True}]
    top = "import os\n" + "\n".join(frame(f'{{"index": {i}, "value": 1}}') for i in range(20)) + "\n"
    assert any_arena.attack(in_solve("return 0", top=top), cases=cases).rewards == (0.5,)
    script = """
def evaluate(candidate, context):
    first = candidate.call("solve", 0).unwrap()
    return {"score": float(candidate.call("solve", 1).unwrap() == 1)}
"""
    ahead = [frame(f'{{"index": {i}, "value": 1}}') for i in range(20)]
    lines = [*ahead, asked('{"index": %d1, "value": 1}'), "return 0"]
    found = any_arena.attack(in_solve(*lines, top="import os"), kind="evaluator", evaluator=script)
    assert found.rewards == (0.0,), found


def test_frames_for_no_question_are_dropped(any_arena):
    lines = [frame(f'{{"index": {index}, "value": 0}}') for index in (99, -2, "true", '"0"', "0.0", "null", "[]")]
    evaluation = any_arena.attack(in_solve(*lines, frame("{}"), "return 2 * x", top="import os\n"))
    assert evaluation.rewards == (1.0,)


FRAMES = {
    "not json": frame("[[["),
    "empty": frame(""),
    "nan": frame('{"index": 0, "value": NaN}'),
    "infinite": frame('{"index": 0, "value": 1e999}'),
    "deep": frame('{"index": 0, "value": ' + "[" * 5000 + "]" * 5000 + "}"),
    "big int": frame('{"index": 0, "value": ' + "9" * 5000 + "}"),
    "long header": "os.write(3, b'\\xff' * 4)",
    "a pickle": "import pickle\nos.write(3, (lambda b: len(b).to_bytes(4, 'big') + b)(pickle.dumps({'index': 0})))",
    "unknown refusal": asked('{"index": %d, "error": "nothing", "detail": ""}'),
    "refusal without text": asked('{"index": %d, "error": "raised", "detail": 3}'),
    "answer without value": asked('{"index": %d}'),
    "value for the loading": frame('{"index": -1, "value": 1}'),
    "a flood of frames": "while True: " + frame("{}"),
    "a flood of results": "while True: " + frame('{"index": 99, "value": "' + "x" * 50000 + '"}'),
    "rewards": frame('{"rewards": {"score": 1e9}}') + "\nos._exit(0)",
    "the supervisor's report": frame('{"status": 0, "ended": true, "cpu_s": 0.0, "memory_bytes": 0}') + "\nos._exit(0)",
}


def sending(lines: str) -> str:
    return in_solve(lines, "return 2 * x") if "_getframe" in lines else f"import os\n{lines}\n" + GOOD


@pytest.mark.parametrize("name", FRAMES)
def test_hostile_frames_are_refused(any_arena, name):
    failure = attacks(any_arena, {each: sending(lines) for each, lines in FRAMES.items()})[name].failure
    assert failure is not None
    assert failure.kind in {FailureKind.INVALID_OUTPUT, FailureKind.CRASHED}


DESCRIPTORS = {
    "the standard output": "socket.send_fds(channel, [b'\\0'], [1])",
    "the channel itself": "socket.send_fds(channel, [b'\\0'], [3, 3, 3])",
    "hundreds": "for _ in range(20): socket.send_fds(channel, [b'\\0'], [0] * 200)",
    "with an answer": "socket.send_fds(channel, [frame(x)], [0])",
}


@pytest.mark.parametrize("line", DESCRIPTORS.values(), ids=DESCRIPTORS)
def test_descriptors_sent_to_the_worker_do_not_arrive(any_arena, line):
    program = f"""
import json, os, socket
channel = socket.socket(fileno=os.dup(3))
def frame(x):
    body = json.dumps({{"index": x, "value": 2 * x}}).encode()
    return len(body).to_bytes(4, "big") + body
def solve(x):
    {line}
    return 2 * x
"""
    before = descriptors(any_arena.pid)
    evaluation = any_arena.attack(program)
    assert evaluation.failure is not None or evaluation.rewards == (1.0,)
    assert descriptors(any_arena.pid) == before


def descriptors(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def test_a_flood_is_cut_to_its_end(any_arena):
    evaluation = any_arena.attack(in_solve("print('x' * 1000000 + 'end')", "return 2 * x"))
    assert evaluation.rewards == (1.0,)
    assert len(evaluation.artifacts["stdout"]) == 4096
    assert evaluation.artifacts["stdout"].endswith("end\n")


def test_broken_standard_streams_do_not_matter(any_arena):
    top = "import os, sys\nsys.stdout = sys.stderr = None\nos.close(1)\nos.close(2)"
    assert any_arena.attack(in_solve("return 2 * x", top=top)).rewards == (1.0,)


def test_the_right_answers_before_the_end_count(any_arena):
    program = in_solve("if x == 3: os._exit(0)", "return 2 * x", top="import os")
    assert any_arena.attack(program, cases=CASES).rewards == (0.75,)
