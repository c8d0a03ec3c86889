"""Attack a tier on this machine at the start of every worker, before trusting it.

A tier that starts may still not isolate: a kernel can lack a feature, a container can forbid it, a distribution can
disable it. The canary program attempts attacks and reports which succeeded.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evaluators.batch import EvaluationBatch
from evaluators.cases import evaluate_cases
from evaluators.local_folders import temporary_folder
from evaluators.tiers.launch import hidden_files
from evaluators.tiers.pool import ZygotePool
from speciate.domain.candidate import FailureKind
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective
from speciate.domain.problem import Case, Problem, ProblemKind
from speciate.domain.target import Target

HELD = "held"

_PROGRAM = """
import ctypes, os, socket

libc = ctypes.CDLL(None, use_errno=True)

def read(path):
    return open(path).read(1)

def write(path):
    open(path, "w").close()

def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        client.connect(tuple(address) if isinstance(address, list) else address)

def signal(pid):
    os.kill(pid, 0)

def fork():
    if os.fork() == 0:
        os._exit(0)

def execute(path):
    os.execv(path, [path])

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

def secrets():
    assert any("SPECIATE" in name for name in os.environ)

def memory(size):
    bytearray(size)

def attempt(name, *args):
    try:
        globals()[name](*args)
    except BaseException:
        return "held"
    return "breached"
"""
_HONEST = "import decimal, numpy\ndef attempt(*args):\n    return 'held'\n"
_ENDLESS = "def attempt(*args):\n    while True: pass\n"

_MOVE = (
    "Candidates can read Speciate's own files. Move the checkout or the virtual environment so that neither the"
    " checkout nor its package is the folder of a Python installation."
)

_COMMON = f"/var/tmp/speciate-canary-{os.getpid()}"  # noqa: S108  # usually writable by every user
_CLONE_NEWUSER = 0x10000000
_LIMITS = Limits(wall_s=10, cpu_s=10)
_SHORT = Limits(wall_s=0.25, cpu_s=1)


@dataclass(frozen=True, slots=True)
class TierProbe:
    """Successful attacks on a tier, or the reason why it does not work, and the fix if it is known."""

    tier: str
    breaches: tuple[str, ...]
    remedy: str = ""

    @property
    def holds(self) -> bool:
        return not self.breaches


@cache
def probe_tier(tier: str) -> TierProbe:
    """Attack a tier and return the result; runs once per process, forked children included."""
    if sys.platform != "linux":
        return TierProbe(tier, ("this is not Linux",), "Use Linux, WSL 2 or a virtual machine.")
    pool = ZygotePool(tier)
    try:
        breaches = tuple(_attack(pool))
        seen = any(path in breach for path in hidden_files() for breach in breaches)
        return TierProbe(tier, breaches, _MOVE if seen else "")
    except EvaluatorUnavailableError as error:
        return TierProbe(tier, (str(error).removesuffix(error.remedy or "").strip(),), error.remedy or "")
    except OSError as error:
        return TierProbe(tier, (f"no process can be started: {error}",))
    finally:
        pool.close()


def _attack(pool: ZygotePool) -> Iterator[str]:
    with _targets() as attempts:
        problem, programs = _problem(attempts, _LIMITS), (_PROGRAM, _HONEST)
        tried, honest = evaluate_cases(EvaluationBatch(problem, programs, (0, 0), pool, float("inf"), 10.0))
        if tried.rewards is None:
            yield f"the canary fails: {tried.failure}"
        elif tried.rewards != (1.0,):
            yield f"an attack succeeded: {tried.artifacts.get('cases', '')}"
        if honest.rewards != (1.0,):
            yield f"an honest program fails: {honest.failure or honest.artifacts}"
        problem = _problem(attempts[:1], _SHORT)
        (endless,) = evaluate_cases(EvaluationBatch(problem, (_ENDLESS,), (0,), pool, float("inf"), 10.0))
        if endless.failure is None or endless.failure.kind is not FailureKind.TIMEOUT:
            yield f"an endless program is not stopped: {endless.failure}"


@contextlib.contextmanager
def _targets() -> Iterator[list[list[object]]]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("canary"))
        folder.chmod(0o755)
        secret = folder / "secret"
        secret.write_text("x")
        secret.chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0speciate-canary-{os.getpid()}-{id(stack)}")
        abstract.listen()
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        named.listen()
        stack.callback(_remove, _COMMON)
        own: list[list[object]] = [["read", path] for path in hidden_files()]
        yield [
            *own,
            ["read", str(secret)],
            ["read", "/etc/passwd"],
            ["read", f"/proc/{os.getpid()}/status"],
            ["write", str(secret)],
            ["write", str(folder / "new")],
            ["write", _COMMON],
            ["connect", int(socket.AF_INET), [*tcp.getsockname()]],
            ["connect", int(socket.AF_UNIX), abstract.getsockname().decode()],
            ["connect", int(socket.AF_UNIX), str(folder / "socket")],
            ["signal", os.getpid()],
            ["signal", os.getppid()],
            ["fork"],
            ["execute", "/bin/true"],
            ["call", "unshare", _CLONE_NEWUSER],
            ["call", "ptrace", 0, 0, 0, 0],
            ["call", "mount", None, None, None, 0, None],
            ["secrets"],
            ["memory", 2 * _LIMITS.memory_bytes],
        ]


def _remove(path: str) -> None:
    # On a read-only root, as in containers, unlink fails even if the file does not exist.
    if os.path.lexists(path):
        Path(path).unlink()


def _problem(attempts: list[list[object]], limits: Limits) -> Problem:
    return Problem(
        slug="canary",
        title="Canary",
        kind=ProblemKind.CASES,
        objectives=(Objective(name="held"),),
        targets=(Target(name="all_held", rule="held >= 1", unlock=True),),
        entry_point="attempt",
        cases=tuple(Case.model_validate({"input": attempt, "expected": HELD}) for attempt in attempts),
        limits=limits,
    )
