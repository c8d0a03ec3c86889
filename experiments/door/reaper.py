"""Run a command and wait for all of its descendants, orphans too, so that their processor time is counted.

``python reaper.py COMMAND …``: the kernel hands orphaned descendants to this process (``PR_SET_CHILD_SUBREAPER``), and
their times are added to its own children's when it has waited for them. Passes SIGTERM on, and exits with the
command's code, at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36


def main(command: list[str]) -> int:
    """Run the command and return its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.posix_spawnp(command[0], command, os.environ)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) & 0xFF)
