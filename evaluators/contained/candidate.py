"""Serve calls into a candidate's program.

First message: ``{"program": text, "files": {name: text}, "seed": int}``, where ``program`` is the main file and
``files`` are the modules beside it. Then calls ``{"index": i, "call": name, "args": [...]}``, answered in order by
``{"index": i, "value": v}`` or ``{"index": i, "error": reason, "detail": text}``. If the program cannot be loaded,
this process reports it once, with index -1.
"""

from __future__ import annotations

import sys
from typing import Any

from .modules import offer
from .program import DETAIL_CHARS, describe, import_generators, load, reason_of, seed_generators
from .wire import TooLongError, Wire

NAME = "candidate"
LOADING = -1


def serve(wire: Wire) -> None:
    first = wire.read()
    if first is None:
        return
    text = first["program"]
    try:
        import_generators("\n".join([text, *first["files"].values()]))
        seed_generators(first["seed"])
        offer(first["files"])
        names = load(text, NAME)
    except BaseException as error:  # noqa: BLE001  # sys.exit() in a program is its failure, not our end
        refuse(wire, LOADING, reason_of(error, NAME), describe(error, text, NAME))
        return
    while (call := wire.read()) is not None:
        _answer(wire, call, names, text)


def _answer(wire: Wire, call: dict[str, Any], names: dict[str, Any], text: str) -> None:
    index, function = call["index"], names.get(call["call"])
    if not callable(function):
        refuse(wire, index, "no_entry_point", f"the program defines no function {call['call']!r}")
        return
    try:
        value = function(*call["args"])
        _flush()
    except BaseException as error:  # noqa: BLE001  # the program's failure is an answer
        refuse(wire, index, reason_of(error, NAME), describe(error, text, NAME))
        return
    try:
        wire.write({"index": index, "value": value})
    except TooLongError as error:
        refuse(wire, index, "too_long", str(error))
    except MemoryError:
        refuse(wire, index, "out_of_memory", "not enough memory to encode the answer")
    except OSError:
        raise
    except BaseException as error:  # noqa: BLE001  # hostile values may raise anything while they are read
        refuse(wire, index, "not_json", f"the answer is not plain JSON: {describe(error, text, NAME)}")


def refuse(wire: Wire, index: int, reason: str, detail: str) -> None:
    _flush()
    wire.write({"index": index, "error": reason, "detail": detail[-DETAIL_CHARS:]})


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # the program may have closed or replaced them
        return
