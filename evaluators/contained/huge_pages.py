"""Keep the zygote's objects in huge pages: a fork copies one entry of the page table for each, instead of 512.

Copying the entries of ordinary pages, and clearing them at the end of a process, is half of the cost of a fork.
"""

# Imports come late: objects made before ``reserve`` lie elsewhere.
_HUGE_BYTES = 2 << 20
_RESERVED_BYTES = 12 << 20  # what the interpreter and numpy use, and the loss at both ends
_OBJECT_BYTES = 448  # a size of Python's small objects, which share arenas
_KEPT_EVERY = 500  # keeps objects in each arena

_reserve: list[bytes] = []


def reserve() -> None:
    """Make Python reserve one piece of memory for small objects, which libraries would otherwise split into many."""
    filled = [bytes(_OBJECT_BYTES - 40) for _ in range(_RESERVED_BYTES // _OBJECT_BYTES)]
    _reserve[:] = filled[::_KEPT_EVERY]


def collapse() -> None:
    """Move this process's memory to huge pages where it fills them; nothing happens where the kernel has none."""
    with open("/proc/self/maps", encoding="utf-8") as file:  # noqa: PTH123  # a path needs imports
        lines = file.read().splitlines()
    for line in lines:
        span, rights, _, _, inode, *name = line.split()
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            first, end = (int(address, 16) for address in span.split("-"))
            for start in range(-(-first // _HUGE_BYTES) * _HUGE_BYTES, end - _HUGE_BYTES + 1, _HUGE_BYTES):
                _collapse(start)


def _collapse(start: int) -> None:
    from contextlib import suppress

    from .kernel import collapse as collapse_range

    with suppress(OSError):  # an empty range, no free huge page, or Linux before 6.1
        collapse_range(start, _HUGE_BYTES)
