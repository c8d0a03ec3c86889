"""Compilers and interpreters of this machine that candidates see inside the sandbox."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from evaluators.local_folders import temporary_folder
from evaluators.tiers.launch import SYSTEM_PATH, readable
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.known_languages import KNOWN, KnownLanguage, programs_of
from speciate.domain.language import Language
from speciate.domain.values import digest_of

_VERSION_S: Final = 30.0
_VERSIONS: Final = {language.version[0]: language.version for language in KNOWN.values()}


@dataclass(frozen=True, slots=True)
class FoundLanguage:
    """A known language: its tool, the first line of the tool's version, and why programs cannot run."""

    name: str
    tool: str
    version: str = ""
    problem: str = ""


class Toolchains:
    """Programs of ``/usr`` and of folders with a ``bin``; the first of the ``folders`` that has one wins."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.folders = tuple(map(str, folders))
        self._path = os.pathsep.join([*(f"{folder}/bin" for folder in self.folders), SYSTEM_PATH])

    def find(self, tool: str) -> Path | None:
        path = shutil.which(tool, path=self._path)
        if path is None:
            return None
        real = Path(path).resolve()
        return real if any(real.is_relative_to(root) for root in self._roots) else None

    @cached_property
    def _roots(self) -> list[Path]:
        return [Path(root).resolve() for root in readable(None, self.folders)]

    def works(self, tool: str) -> bool:
        """Return True if candidates see a program, and it prints its version if it belongs to a known language."""
        path = self.find(tool)
        return path is not None and (tool not in _VERSIONS or bool(self._version(tool, path)))

    def require(self, language: Language) -> None:
        for tool in language.programs:
            if not self.works(tool):
                raise EvaluatorUnavailableError(
                    f"Programs in {language.name} need {tool!r}, which {self._where(tool)}.",
                    remedy="Install it below /usr, or name its installation in the setting `toolchains`;"
                    " `speciate doctor` lists the languages of this machine.",
                )

    def identity(self, language: Language) -> str:
        return digest_of([self._identity(tool) for tool in language.programs])

    def languages(self) -> Iterator[FoundLanguage]:
        return map(self._look_up, KNOWN.values())

    def _look_up(self, language: KnownLanguage) -> FoundLanguage:
        tool = language.version[0]
        for needed in programs_of(language.version, language.build, language.run):
            if not self.works(needed):
                return FoundLanguage(language.name, tool, problem=f"{needed} {self._where(needed)}")
        path = self.find(tool) or Path(tool)
        return FoundLanguage(language.name, tool, version=self._version(tool, path).splitlines()[0])

    def _where(self, tool: str) -> str:
        if (path := self.find(tool)) is not None:
            return f"does not work: `{' '.join(_VERSIONS[tool])}` fails for {path}"
        elsewhere = shutil.which(tool)
        if elsewhere is None:
            return "is not installed on this machine"
        return f"candidates cannot see: {elsewhere} is outside /usr and the setting `toolchains`"

    def _identity(self, tool: str) -> list[object]:
        path = self.find(tool)
        return [tool] if path is None else [str(path), path.stat().st_mtime_ns, self._version(tool, path)]

    def _version(self, tool: str, path: Path) -> str:
        command = _VERSIONS.get(tool)
        try:
            return "" if command is None else _printed(command, self._path, path.stat().st_mtime_ns)
        except (OSError, subprocess.SubprocessError):  # not cached: a library of it may be installed later
            return ""


@lru_cache(maxsize=256)
def _printed(command: tuple[str, ...], path: str, _changed_ns: int) -> str:
    with temporary_folder("version") as home:
        environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}
        output = subprocess.run(
            [shutil.which(command[0], path=path) or command[0], *command[1:]],
            env=environment,
            cwd=home,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_S,
        )
    return (output.stdout or output.stderr).decode("utf-8", "replace").strip()
