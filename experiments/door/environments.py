"""Environments of their own for the peers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from experiments.door.declaration import PACKAGES

_NEEDED = ("numpy", "scipy")
"""Packages that problems allow programs to use."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer's environment.

    Attributes:
        version: Version of its package; empty if it could not be installed.
        python: Its Python.
        trouble: Last line of the output of a failed installation.
    """

    version: str
    python: Path
    trouble: str = ""


def install(name: str, folder: Path) -> Installed:
    """Install a peer into ``folder/name`` unless it is there, and return its environment."""
    home = folder / name
    python = home / "bin" / "python"
    version = _version(python, PACKAGES[name])
    if not version:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        made = subprocess.run([*command, PACKAGES[name], *_NEEDED], capture_output=True, text=True, check=False)
        version = _version(python, PACKAGES[name])
        if made.returncode or not version:
            lines = [line for line in made.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
            return Installed("", python, lines[-1] if lines else f"exit code {made.returncode}")
    return Installed(version, python)


def _version(python: Path, package: str) -> str:
    if not python.exists():
        return ""
    code = f"import importlib.metadata as m, numpy, scipy; print(m.version({package!r}))"
    asked = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""
