"""Run an engine contained, and end all that it started: ``python -m speciate.engines.contain < ORDER``.

This process stays outside: orphans become its children, so that none is left and all processor time is counted.
"""

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

from evaluators.contained import kernel, landlock
from evaluators.contained.proc import ProcFolder
from evaluators.contained.sweep import sweep
from speciate.subprocesses import MARK

LEFT_RUNNING: Final = "The engine left processes running; they were ended."
_DATA_BYTES: Final = 8 << 30
"""Private memory of each process."""
_PR_SET_PDEATHSIG: Final = 1
_SYSTEM: Final = (
    "/usr /lib /lib64 /bin /sbin /proc /sys/devices/system /etc/ld.so.cache /etc/alternatives /etc/localtime"
    " /etc/ssl /etc/ca-certificates /etc/pki /etc/passwd /etc/group /etc/hosts /etc/nsswitch.conf /etc/mime.types"
    " /dev/zero /dev/random /dev/urandom"
)


def main(order: dict[str, Any]) -> int:
    """Run the engine and return its exit code, or that of a shell if a signal ended it."""
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    kernel.adopt_orphans()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    child = os.fork()
    if child == 0:
        _enter(order)
    code: int = 128 + signal.SIGTERM
    with suppress(SystemExit):  # the runner ends the engine, or has ended itself
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        if os.getppid() != order["parent"]:
            sys.exit()
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) is not None and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)  # an orphan
        if ended is not None:
            code = ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
        processes = ProcFolder()
        states = [processes.stat(pid)[:1] for pid in processes.descendants(str(os.getpid()))]
        if any(state not in ([b"Z"], []) for state in states):
            os.write(2, f"{LEFT_RUNNING}\n".encode())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sweep(child, (0.0, 0))
    return code


def _enter(order: dict[str, Any]) -> NoReturn:
    """Become the engine."""
    try:
        os.setsid()
        kernel.die_with_parent()
        for which, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, _DATA_BYTES)):
            resource.setrlimit(which, (limit, limit))
        os.chdir(order["home"])
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
        if version := landlock.abi():
            all_rights = landlock.handled(version)[0]
            allowed = dict.fromkeys((*_SYSTEM.split(), *order["readable"]), landlock.READ | landlock.EXECUTE)
            # Locks of multiprocessing are files in /dev/shm.
            allowed |= dict.fromkeys((order["home"], "/dev/shm"), all_rights)  # noqa: S108
            allowed["/dev/null"] = landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE
            landlock.restrict(version, allowed, port=order["port"])
        command = order["command"]
        os.execve(command[0], command, {**order["environment"], MARK: os.environ[MARK]})  # noqa: S606
    except BaseException as error:  # noqa: BLE001  # this fork must not go on as the process outside
        os.write(2, f"The engine cannot start: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
