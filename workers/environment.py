"""Erase secrets from the environment of this process."""

import ctypes
import os
from collections.abc import Iterable


def erase(variables: Iterable[str]) -> None:
    """Remove variables, also from the memory that the kernel shows as ``/proc/PID/environ``.

    ``unsetenv`` leaves the text of a variable in that memory, where other processes of the same user can read it. Call
    it before there are threads: the C library's list of variables has no lock.
    """
    names = {os.fsencode(name) for name in variables}
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    at = 0
    while address := entries[at]:
        name, _, value = ctypes.string_at(address).partition(b"=")
        if name in names:
            ctypes.memset(address + len(name) + 1, 0, len(value))
        at += 1
    for name in names:
        os.environb.pop(name, None)
