"""Isolation features of this kernel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from evaluators.contained import landlock
from evaluators.contained.syscalls import MACHINES
from evaluators.tiers.cgroup import delegated

_CLONE_NEWUSER = 0x10000000


def kernel_features() -> str:
    system = os.uname()
    support = "" if system.machine in MACHINES else " (unsupported architecture: no tier works)"
    abi = landlock.abi()
    return ", ".join(
        [
            f"{system.sysname} {system.release} on {system.machine}{support}",
            f"Landlock {abi}" if abi else "no Landlock",
            "user namespaces" if _user_namespaces() else "no user namespaces",
            _bubblewrap(),
            "a delegated control group" if delegated() else "no delegated control group",
        ]
    )


def _user_namespaces() -> bool:
    """Return True if this user can create a user namespace; tried, since distributions forbid them in many ways."""
    attempt = f"import ctypes; raise SystemExit(ctypes.CDLL(None).unshare({_CLONE_NEWUSER}) != 0)"
    return subprocess.run([sys.executable, "-I", "-S", "-c", attempt], check=False).returncode == 0


def _bubblewrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "no bubblewrap"
    output = subprocess.run([program, "--version"], check=False, capture_output=True, text=True).stdout
    version = re.search(r"[\d.]+", output)
    return f"bubblewrap {version[0] if version else Path(program).name}"
