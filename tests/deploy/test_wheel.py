"""The wheel, installed into an empty environment without a checkout, runs the whole service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from speciate.cli.errors import ExitCode

ROOT = Path(__file__).parents[2]
INSTALL_LIMIT_S = 600
UP_LIMIT_S = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    return next(folder.glob("speciate-*.whl"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An empty home directory beside an environment that holds the wheel and its dependencies alone."""
    folder = tmp_path_factory.mktemp("fresh")
    _run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    _run(folder / "env/bin/pip", "install", "--quiet", "--no-compile", wheel, cwd=folder)
    (folder / "home").mkdir()
    return folder / "home"


def _run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None, code: int = 0) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def _environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


def _speciate(home: Path, *arguments: str, code: int = 0, **more: str) -> str:
    return _run(home.parent / "env/bin/speciate", *arguments, cwd=home, env=_environment(home, **more), code=code)


@pytest.fixture
def url(home: Path) -> Iterator[str]:
    """The address of a service that the installed command started."""
    command = [home.parent / "env/bin/speciate", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=home, env=_environment(home), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield _address(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=UP_LIMIT_S)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    printed = []
    for line in process.stderr:
        printed.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("".join(printed))


def test_only_one_top_level_package_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert tops == {"speciate", next(name for name in tops if name.endswith(".dist-info"))}


def test_a_seed_program_is_evaluated_without_a_service(home: Path) -> None:
    _speciate(home, "problems", "init", "my-problem")
    assert "Scored in" in _speciate(home, "problems", "check", "my-problem")


def test_a_run_is_completed(home: Path, url: str) -> None:
    where = {"SPECIATE_URL": url}
    _speciate(home, "problems", "add", "sorting-network-8", **where)
    # Eight evaluations do not reach the unlock.
    run = ["run", "sorting-network-8", "--policy", "mutator", "--budget", "8", "--watch"]
    _speciate(home, *run, code=ExitCode.NOT_UNLOCKED, **where)
    assert "completed" in _speciate(home, "runs", "list", **where)
    assert "maze-vpo" not in _speciate(home, "policies", "list", **where)
    with urlopen(f"{url}/docs/api") as page:
        scripts = re.findall(r'src="(/static/[^"]+)"', page.read().decode())
    for script in scripts:
        with urlopen(url + script) as file:
            assert file.read(), script
    assert any(script.endswith("/swagger-ui.js") for script in scripts)


def test_python_evolves_a_program_with_a_function_and_with_an_evaluator(home: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    five_lines = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "evolve(" in block)
    (home / "readme.py").write_text(five_lines)
    (home / "program.py").write_text("def root(x):\n    return x / 2.0\n")
    evaluator = """
import runpy

def evaluate(path):
    return {"combined_score": -abs(runpy.run_path(path)["root"](3) ** 2 - 3)}
"""
    (home / "evaluator.py").write_text(evaluator)
    files = """
import speciate

print(speciate.evolve("program.py", "evaluator.py", evaluations=3, progress=False).best.program)
"""
    (home / "files.py").write_text(files)
    for script in ("readme.py", "files.py"):
        assert "def root" in _run(home.parent / "env/bin/python", script, cwd=home, env=_environment(home))


def test_the_doctor_finds_no_problem_beside_the_absent_service(home: Path) -> None:
    assert "Traceback" not in _speciate(home, "doctor")
