"""The engines that come with Speciate, their environments, and engines that the user names."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
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
    requirement: str = ""
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


def installed(name: str, data_dir: Path) -> Engine | None:
    """Return a bundled engine; None if it is not installed."""
    if name not in BUNDLED:
        raise InvalidInputError(
            f"No engine {name!r} comes with Speciate, only {', '.join(BUNDLED)}.",
            remedy='Start another one with --command "python my_engine.py".',
        )
    python, version = Path(sys.executable).resolve(), speciate.__version__
    if BUNDLED[name].requirement:
        environment = _environment(name, data_dir)
        sites = [str(path) for path in environment.glob("lib/python*/site-packages")]
        packages = [*metadata.distributions(name=name, path=sites)]
        python, version = environment / "bin" / "python", packages[0].version if packages else ""
    command = (str(python), str(_DRIVERS / BUNDLED[name].driver))
    return Engine(command, version, (*_folders_of(python), str(_DRIVERS))) if version else None


def install(name: str, data_dir: Path) -> Engine | None:
    """Install a bundled engine with pip into an environment of its own, unless it is there."""
    if (engine := installed(name, data_dir)) is not None:
        return engine
    folder = _environment(name, data_dir)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for command in ((sys.executable, "-m", "venv", "--clear", str(folder)), (*pip, BUNDLED[name].requirement)):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            lines = [line for line in (made.stdout + made.stderr).splitlines() if line.strip()]
            raise ConfigurationError(f"{name} cannot be installed: {lines[-1] if lines else made.returncode}.")
    return installed(name, data_dir)


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
    paths = [Path(word).absolute() if len(word) < 256 and Path(word).exists() else None for word in words[1:]]
    arguments = [str(path or word) for path, word in zip(paths, words[1:], strict=True)]
    named = [*filter(None, paths), *(path.absolute() for path in readable)]
    # An absolute path that is not resolved: a virtual environment is found by the link to its Python.
    command = (os.path.abspath(program), *arguments)  # noqa: PTH100
    return Engine(command, version, (*_folders_of(Path(command[0])), *map(str, named)))


def _environment(name: str, data_dir: Path) -> Path:
    return data_dir / "engines" / "environments" / name


def _folders_of(program: Path) -> list[str]:
    """Return the paths that a program needs: its file, its virtual environment, and its Python."""
    files = {program, program.resolve()}
    roots = {
        file.parents[1]
        for file in files
        if (file.parents[1] / "pyvenv.cfg").exists() or (file.parents[1] / "lib" / file.name).is_dir()
    }
    return sorted(map(str, files | roots))
