"""The evaluator of LiveCodeBench problems with standard input: this file, word for word, is the author's script.

Nothing but the standard library is imported, since the script has to run by itself.
"""

import json
from decimal import Decimal
from typing import Any

CALL_S = 6.0


def evaluate(candidate: Any, context: Any) -> dict[str, float]:
    """Return which tests a program's ``solve(text)`` passes, 1 or 0 each.

    Failing public tests are quoted as feedback. Nothing of the private ones is, except what the program itself prints.
    """
    tests = json.loads(context.files["tests.json"])
    replies = [candidate.call("solve", test["input"], timeout_s=CALL_S) for test in tests]
    if all(reply.failure is not None for reply in replies):
        if tests[0]["public"]:
            replies[0].unwrap()
        context.invalid("solve answered none of the tests")
    rewards = {}
    for number, (test, reply) in enumerate(zip(tests, replies, strict=True), 1):
        passed = isinstance(reply.value, str) and same(test["output"], reply.value)
        rewards[f"test_{number}"] = float(passed)
        if test["public"] and not passed:
            got = repr(reply.value) if reply.failure is None else reply.failure.detail.strip()[-300:]
            context.note("tests", f"input {test['input']!r} expected {test['output']!r} got {got[:1000]}")
    return rewards


def same(expected: str, got: str) -> bool:
    """Tell whether two outputs agree line by line, without white space around lines, numbers by their value."""
    lines, theirs = expected.strip().split("\n"), got.strip().split("\n")
    return len(lines) == len(theirs) and all(map(_same_line, lines, theirs))


def _same_line(expected: str, got: str) -> bool:
    if expected.strip() == got.strip():
        return True
    try:
        return [Decimal(word) for word in expected.split()] == [Decimal(word) for word in got.split()]
    except (ArithmeticError, ValueError):
        return False
