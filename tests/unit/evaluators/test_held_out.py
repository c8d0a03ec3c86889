"""What a candidate prints or raises once it has received held-out inputs stays outside its evaluation."""

import pytest

SHOWN, SECRET = 1203, 87654321
RECORD = {"name": "held_out_score", "role": "record"}
SCRIPT = """
def evaluate(candidate, context):
    shown = candidate.call("solve", {shown}{first}).unwrap()
    hidden = candidate.call("solve", {secret}{then})
    return {{"score": float(shown), "held_out_score": float(hidden.unwrap())}}
"""

LEAKS = {
    "prints": "print('got', x, flush=True)",
    "prints to stderr": "print('got', x, file=sys.stderr)",
    "prints without a flush": "sys.stdout.write(f'got {x}')",
    "prints from a thread": "threading.Timer(0.05, print, ['got', x], {'flush': True}).start()",
    "writes to the descriptor": "os.write(1, f'got {x}'.encode())",
    "raises": "if x != SHOWN: raise ValueError(f'got {x}')",
    "has a name": "if x != SHOWN: raise type(f'Got{x}', (Exception,), {})",
    "exits": "if x != SHOWN: os._exit(x % 256)",
    "dies": "if x != SHOWN: print('got', x, flush=True); os.kill(os.getpid(), 9)",
    "answers with text": "if x != SHOWN: return f'got {x}'",
    "answers too much": "if x != SHOWN: return 'x' * (x // 20)",
    "breaks the channel": "if x != SHOWN: [os.write(fd, f'got {x}'.encode()) for fd in range(3, 9) if open_(fd)]",
    "prints before it dies in a later call": "if x != SHOWN: print('got', x, flush=True); os._exit(1)",
}
PROGRAM = """
import os, sys, threading
SHOWN = {shown}
def open_(fd):
    try: return os.fstat(fd)
    except OSError: return None
def solve(x):
    if x == SHOWN: print("shown", x)
    {body}
    return 1
"""


@pytest.fixture
def evaluate(sandbox, make_problem):
    def one(body, first=", held_out=False", then="", script=SCRIPT):
        text = script.format(shown=SHOWN, secret=SECRET, first=first, then=then)
        limits = {"wall_s": 5.0, "output_bytes": 1 << 16}
        problem = make_problem("evaluator", names=("score", RECORD), evaluator=text, limits=limits)
        program = PROGRAM.format(shown=SHOWN, body=body)
        (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
        return evaluation

    return one


@pytest.mark.parametrize("body", LEAKS.values(), ids=LEAKS)
def test_nothing_of_a_held_out_call_is_in_the_evaluation(evaluate, body):
    for then in ("", ", held_out=True", ", timeout_s=4"):
        evaluation = evaluate(body, then=then)
        texts = f"{evaluation.artifacts} {evaluation.failure}"
        assert str(SECRET) not in texts
        assert f"code {SECRET % 256}" not in texts
        assert f"shown {SHOWN}" in evaluation.artifacts["stdout"]
        if evaluation.failure is not None and "evaluator_raised" not in evaluation.failure.reason:
            assert evaluation.failure.detail == "on inputs that are not shown"


def test_calls_are_held_out_where_a_script_does_not_say_otherwise(evaluate):
    evaluation = evaluate("print('got', x)", first="")
    assert evaluation.rewards == (1.0, 1.0)
    assert evaluation.artifacts == {}


def test_calls_after_a_held_out_one_are_held_out_too(evaluate):
    script = """
def evaluate(candidate, context):
    candidate.call("solve", {secret}{then})
    again = candidate.call("solve", {shown}{first})
    context.note("again", repr(again.failure))
    return {{"score": 0.0, "held_out_score": 0.0}}
"""
    body = "SEEN.append(x) if 'SEEN' in globals() else globals().update(SEEN=[x])\n"
    body += "    if x == SHOWN: raise ValueError(str(SEEN))"
    evaluation = evaluate(body, script=script)
    assert (
        evaluation.artifacts["again"]
        == "CallFailure(kind='crashed', reason='raised', detail='on inputs that are not shown')"
    )
    assert str(SECRET) not in str(evaluation)


def test_the_scripts_own_mistake_keeps_its_place(evaluate):
    script = SCRIPT.replace("return", "assert not hidden.value, hidden.value\n    return")
    failure = evaluate("if x != SHOWN: return f'got {x}'", script=script).failure
    assert failure.reason == "evaluator_raised"
    assert "assert not hidden.value" in failure.detail
    assert failure.detail.endswith("AssertionError")


def test_failures_of_shown_calls_are_told_in_full(evaluate):
    failure = evaluate("if x == SHOWN: raise ValueError('see here')").failure
    assert "see here" in failure.detail


def test_a_later_stage_keeps_what_an_earlier_one_held_out(sandbox, make_problem):
    script = f"""
def evaluate_first(candidate, context):
    candidate.call("solve", {SECRET}).unwrap()
    return {{"score": 1.0, "held_out_score": 1.0}}

def evaluate_second(candidate, context):
    return {{"later": float(candidate.call("solve", {SHOWN}, held_out=False).value)}}
"""
    stages = [{"name": "first", "objectives": ["score", "held_out_score"]}, {"name": "second", "objectives": ["later"]}]
    names = ("score", RECORD, {"name": "later", "range": [0, 1]})
    problem = make_problem("evaluator", names=names, evaluator=script, stages=stages)
    program = "SEEN = []\ndef solve(x):\n    SEEN.append(x)\n    return f'got {SEEN}'\n"
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
    assert evaluation.artifacts["stopped"].endswith("ValueError")
    assert str(SECRET) not in str(evaluation)
