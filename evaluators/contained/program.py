"""Seed and run an untrusted program text, and describe its exceptions."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from typing import Any

DETAIL_CHARS = 4000
LIBRARIES = "TOOLCHAIN_LIBRARIES"
"""Variable with the folders of libraries of toolchains outside ``/usr``."""
_FRAMES = 8


def load(text: str, name: str, file: str | None = None) -> dict[str, Any]:
    """Run a program's top level as a module and return its names; raises whatever the program raises."""
    code = compile(text, f"{name}.py", "exec", dont_inherit=True)
    module = type(sys)(name)
    if file is not None:
        module.__file__ = file
    sys.modules[name] = module  # dataclasses and typing look up a class's module by name
    exec(code, module.__dict__)  # noqa: S102  # running it is what this process is for
    return module.__dict__


def describe(error: BaseException, text: str, name: str, *, quote: bool = True) -> str:
    """Return a traceback's end in the program; without ``quote`` not the exception's text, which may be data."""
    try:
        import linecache
        import traceback

        linecache.cache[f"{name}.py"] = (len(text), None, text.splitlines(keepends=True), f"{name}.py")
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != f"{name}.py":
            trace = trace.tb_next  # skip frames outside the program
        if not quote:
            return "".join([*traceback.format_tb(trace, limit=-_FRAMES), type(error).__name__])[-DETAIL_CHARS:]
        return "".join(traceback.format_exception(type(error), error, trace, limit=-_FRAMES))[-DETAIL_CHARS:]
    except BaseException:  # noqa: BLE001  # an exception whose __str__ raises, or no memory left to format it
        return type(error).__name__


def reason_of(error: BaseException, name: str) -> str:
    match error:
        case MemoryError():
            return "out_of_memory"
        case SyntaxError() if error.filename == f"{name}.py":
            return "syntax_error"
        case _:
            return "raised"


def show_libraries() -> None:
    """Let programs that start later find the libraries of toolchains, which Python itself must not load.

    The loader knows a program's own folder (``$ORIGIN``) from ``/proc/self/exe``, which is not there.
    """
    if folders := os.environ.pop(LIBRARIES, ""):
        os.environ["LD_LIBRARY_PATH"] = folders


def import_generators(text: str) -> None:
    """Import numpy's random module if a program mentions it, so that it can be seeded before it runs."""
    if "numpy" in text and "random" in text:
        with contextlib.suppress(ImportError):  # the program raises the same error and reports it
            import numpy.random  # noqa: F401


def seed_generators(seed: int) -> None:
    """Seed ``random``, and ``numpy.random`` if it is imported, so that a deterministic program repeats its answers.

    Generators that a program creates (``numpy.random.default_rng()``) take fresh entropy and are not seeded here.
    """
    random.seed(seed)
    if (module := sys.modules.get("numpy.random")) is not None:
        module.seed(seed % (1 << 32))
