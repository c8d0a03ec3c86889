"""The sandbox's benchmark, where its command lines depend on the machine."""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

from benchmarks.sandbox import bubblewrap


def test_bubblewrap_finds_an_interpreter_beneath_tmp(monkeypatch):
    if shutil.which("bwrap") is None or subprocess.run([*bubblewrap(), "/bin/true"], check=False).returncode:
        pytest.skip("bubblewrap does not work here")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv.create(folder, symlinks=True)
        monkeypatch.setattr(sys, "prefix", folder)
        command = [*bubblewrap(), str(Path(folder, "bin", "python")), "-I", "-c", "import sys; print(sys.prefix)"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (f"{folder}\n", "")
