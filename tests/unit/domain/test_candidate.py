"""Failures of candidates."""

from __future__ import annotations

import pytest

from speciate.domain.candidate import Failure, FailureKind

RUST = """error[E0382]: no
 --> a.rs:3
error: aborting due to 1 previous error

For more information about this error, try `rustc --explain E0382`.
rustc: it exited with code 1"""


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Traceback:\n  File\nValueError: no", "ValueError: no"),
        ("java.lang.Error: no\n\tat Main.main(Main.java:3)", "java.lang.Error: no"),
        ("panic: no\n\ngoroutine 1 [running]:\nstrings.Repeat({0x1}, 0x2)\n\t/usr/a.go:3", "panic: no"),
        ("panic: no\n[signal SIGSEGV: no code=0x1]\n\ngoroutine 1 [running]:\nmain.main()", "panic: no"),
        ("fatal error: no\n\nruntime stack:\nx()\n\ngoroutine 1 gp=0xc0 m=0 [running]:\nx()", "fatal error: no"),
        ("lua: a.lua:1: no\nstack traceback:\n\t[C]: in ?", "lua: a.lua:1: no"),
        ("PHP Fatal error:  no\nStack trace:\n#0 {main}", "PHP Fatal error:  no"),
        ("a: no\nCallStack (from HasCallStack):\n  error, called at a.hs:1", "a: no"),
        ("Error: no\n    at f (a.js:1) {\n  code: 'X'\n}\n\nNode.js v20.1", "Error: no"),
        ("it was killed by SIGABRT\nterminate called after 'E'\n  what():  no", "what():  no"),
        ("ERROR: LoadError: no\nStacktrace:\n [1] f()\nin expression starting at /tmp/a.jl:1", "ERROR: LoadError: no"),
        (RUST, "error[E0382]: no"),
        ("Main.java:3: error: no\n  int x\n1 error\njavac: it exited with code 1", "Main.java:3: error: no"),
        ("Fortran runtime error: no\n\nError termination. Backtrace:\n#0  0x7f", "Fortran runtime error: no"),
        ("main.cs(3,5): error CS1002: no\nmcs: it exited with code 1", "main.cs(3,5): error CS1002: no"),
        ("Traceback:\n  File\nRuntimeError: it exited with code 1", "RuntimeError: it exited with code 1"),
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
