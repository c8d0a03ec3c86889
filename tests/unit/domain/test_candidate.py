"""Failures of candidates."""

from __future__ import annotations

import pytest

from speciate.domain.candidate import Failure, FailureKind


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Traceback:\n  File\nValueError: no", "ValueError: no"),
        ("java.lang.Error: no\n\tat Main.main(Main.java:3)", "java.lang.Error: no"),
        ("panic: no\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/a.go:3", "panic: no"),
        ("thread 'main' panicked: no\nnote: run with RUST_BACKTRACE=1", "thread 'main' panicked: no"),
        ("Error: no\n    at f (a.js:1)\n\nNode.js v20.1", "Error: no"),
        ("Error in f() : no\nCalls: f\nExecution halted", "Error in f() : no"),
        ("main.ts(3,1): error TS2322: no\ntsc: it exited with code 2", "main.ts(3,1): error TS2322: no"),
        ("note: only\n  notes", "notes"),
        ("", "crashed (raised)"),
    ],
)
def test_the_line_of_the_error_is_found_in_the_output_of_any_language(detail: str, line: str) -> None:
    assert Failure(FailureKind.CRASHED, "raised", detail).last_line == line
