"""A warm interpreter that forks supervisors of contained processes, and reads nothing else.

Importing numpy takes forty times as long as a fork. Supervisors only pass on the channels of candidates and authors;
programs and inputs never enter their memory or the zygote's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from . import kernel
from .bounds import Bounds
from .enter import Tier
from .meter import Footprint, Meter
from .requests import ERROR, MESSAGE_BYTES, BootMessage, SpawnRequest
from .supervise import supervise


def main(fd: int) -> NoReturn:
    """Serve packets, a ``SpawnRequest`` with a supervisor's connection each, until the other end closes."""
    # The worker may have passed a high number; supervisors close what they do not need below ``LOW_FDS``.
    requests = socket.socket(fileno=os.dup(fd))
    os.close(fd)
    tier = _get_ready(requests)
    warm, meter = Footprint.current(), Meter()

    @lru_cache(maxsize=1)  # all requests for one problem are equal
    def understand(data: bytes) -> tuple[SpawnRequest, Bounds]:
        order = SpawnRequest.decode(data)
        tier.precompute(order)
        return order, Bounds(order, warm, meter, threads=not tier.bounds_threads)

    while True:
        data, fds, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 1)
        if not data:
            os._exit(0)
        try:
            order, bounds = understand(data)
            pid = tier.fork()
        except OSError as error:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fds[0])) as connection:
                connection.send(ERROR + f"no process can be forked: {error}".encode())
        else:
            if pid == 0:
                supervise(tier, order, bounds, fds[0])
        os.close(fds[0])


def _get_ready(requests: socket.socket) -> Tier:
    try:
        boot = BootMessage.decode(requests.recv(MESSAGE_BYTES))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors need no reaping: they report themselves
        sys.path.extend(boot.path)
        missing = _preload(boot.preload if boot.preload_early else ())
        if boot.user is not None:
            os.setgroups([])
            os.setresgid(boot.user, boot.user, boot.user)
            os.setresuid(boot.user, boot.user, boot.user)
        kernel.forbid_new_privileges()
        # Only this tier: every import enlarges all forks.
        tier: Tier = importlib.import_module(f"{__package__}.{boot.tier_module}").open_tier(boot)
        missing |= _preload(boot.preload)
        _refuse_threads(boot.preload)
    except BaseException as error:  # noqa: BLE001  # reported to the worker
        requests.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    # For programs that scripts start: Python's own search path lacks the packages of a problem.
    os.environ["PYTHONPATH"] = os.pathsep.join(boot.path)
    # A killed process loses its buffered output.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.disable()
    gc.collect()
    gc.freeze()  # the collector does not touch frozen pages, so forks do not copy them
    requests.send(json.dumps({"missing": missing}).encode())
    return tier


def _refuse_threads(preload: Sequence[str]) -> None:
    others = len(list(Path("/proc/self/task").iterdir())) - 1
    if others:
        raise RuntimeError(f"preloading {', '.join(preload)} starts {others} threads, which do not survive a fork")


def _preload(names: Sequence[str]) -> dict[str, str]:
    missing: dict[str, str] = {}
    for name in ("random", "linecache", "traceback", *names):
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  # whatever a module raises when it is imported
            missing[name] = f"{type(error).__name__}: {error}"
    if "numpy" in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module("numpy.random")
    return missing
