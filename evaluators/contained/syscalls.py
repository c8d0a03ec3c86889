"""Numbers of the system calls that the sandbox names, for x86_64 and aarch64, from ``syscalls.txt``."""

from __future__ import annotations

import os
from functools import cache

MACHINES = ("x86_64", "aarch64")

Numbers = dict[str, tuple["int | None", "int | None"]]
"""Name of a call: its number on each machine; a call without a number does not exist there."""


def _read_groups() -> dict[str, Numbers]:
    groups: dict[str, Numbers] = {}
    with open(f"{os.path.dirname(__file__)}/syscalls.txt", encoding="ascii") as file:  # noqa: PTH120, PTH123
        for line in file.read().splitlines():
            if line.startswith("["):
                group = groups.setdefault(line[1 : line.index("]")], {})
            elif line and not line.startswith("#"):
                name, x86_64, aarch64 = line.split()
                group[name] = None if x86_64 == "-" else int(x86_64), None if aarch64 == "-" else int(aarch64)
    return groups


_GROUPS = _read_groups()
DESCRIPTORS, PATHS, ATTRIBUTES, CHANGES, MEMORY, TASKS, OWN, TIME, _CONTAINMENT = _GROUPS.values()
NUMBERS: Numbers = {name: numbers for group in _GROUPS.values() for name, numbers in group.items()}


@cache
def number(name: str, machine: str | None = None) -> int:
    """Return the number of a system call on a machine (default: this one); raises ``OSError`` if there is none."""
    value = table(machine).get(name)
    if value is None:
        raise OSError(f"system call {name!r} does not exist on {machine or os.uname().machine}")
    return value


@cache
def table(machine: str | None = None) -> dict[str, int]:
    """Return the numbers of every known call that exists on a machine; raises ``OSError`` if the machine is unknown."""
    machine = machine or os.uname().machine
    if machine not in MACHINES:
        raise OSError(f"the system calls of {machine} are unknown: the sandbox runs on {' and '.join(MACHINES)}")
    column = MACHINES.index(machine)
    return {name: value for name, numbers in NUMBERS.items() if (value := numbers[column]) is not None}
