"""Serve a program of our own before the first fork, so that forks find the interpreter warm.

Python specializes code, and the linker binds functions, when they first run. In a fork that would write to, and so
copy, pages that all forks can share.
"""

from __future__ import annotations

import socket
import sys

from . import candidate
from .wire import Wire

_TIMES = 10  # Python specializes a function within eight calls
_PROGRAM = "def solve(x):\n    return 2 * x\n"
_CALLS = 4


def warm_up() -> None:
    """Serve calls as a candidate does; leaves nothing behind but the state of random generators, which forks seed."""
    for _ in range(_TIMES):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            wire = Wire(ours.fileno(), 1 << 16)
            wire.write({"program": _PROGRAM, "files": {}, "seed": 0})
            for index in range(_CALLS):
                wire.write({"index": index, "call": "solve", "args": [index]})
            ours.shutdown(socket.SHUT_WR)
            candidate.serve(Wire(theirs.fileno(), 1 << 16))
        del sys.modules[candidate.NAME]
