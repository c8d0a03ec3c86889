"""Let programs that this process starts find the libraries of toolchains outside ``/usr``.

The loader knows a program's own folder (``$ORIGIN``) from ``/proc/self/exe``, which contained processes do not have.
The variable takes effect only in children: Python itself must not load such libraries.
"""

from __future__ import annotations

import os

VARIABLE = "TOOLCHAIN_LIBRARIES"


def show_libraries() -> None:
    """Hand the folders in the variable to programs that start later."""
    if folders := os.environ.pop(VARIABLE, ""):
        os.environ["LD_LIBRARY_PATH"] = folders
