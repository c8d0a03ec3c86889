"""Languages that a problem can name without commands: the one declaration of their files, fences and commands."""

from collections.abc import Sequence
from typing import Final, NamedTuple


class KnownLanguage(NamedTuple):
    """Defaults of a language. ``{file}`` in a command is the file name of the program."""

    name: str
    file: str
    labels: tuple[str, ...]
    """Labels of code fences, the usual one first."""
    build: tuple[str, ...]
    """Command that compiles a program; empty for none."""
    run: tuple[str, ...]
    """Command that runs it."""
    version: tuple[str, ...]
    """Command that prints the version of the compiler or interpreter."""


def _compiled(name: str, file: str, labels: str, build: str, version: str) -> KnownLanguage:
    return KnownLanguage(
        name, file, tuple(labels.split()), tuple(build.split()), ("./program",), tuple(version.split())
    )


def _interpreted(name: str, file: str, labels: str, run: str, version: str) -> KnownLanguage:
    return KnownLanguage(name, file, tuple(labels.split()), (), tuple(run.split()), tuple(version.split()))


KNOWN: Final[dict[str, KnownLanguage]] = {
    "c": _compiled("C", "main.c", "c", "gcc -O2 -std=gnu17 -o program {file} -lm", "gcc --version"),
    "cpp": _compiled("C++", "main.cpp", "cpp c++ cc cxx", "g++ -O2 -std=gnu++17 -o program {file}", "g++ --version"),
    "fortran": _compiled("Fortran", "main.f90", "fortran f90", "gfortran -O2 -o program {file}", "gfortran --version"),
    "go": _compiled("Go", "main.go", "go golang", "go build -o program {file}", "go version"),
    "javascript": _interpreted("JavaScript", "main.js", "javascript js node", "node {file}", "node --version"),
    "julia": _interpreted("Julia", "main.jl", "julia jl", "julia --startup-file=no {file}", "julia --version"),
    "r": _interpreted(
        "R",
        "main.R",
        "r",
        "env R_HOME=/usr/lib/R /usr/lib/R/bin/exec/R --no-echo --no-restore --vanilla --file={file}",
        "Rscript --version",
    ),  # the usual command is a shell script that starts processes
    "rust": _compiled(
        "Rust",
        "main.rs",
        "rust rs",
        # Not its own linker: that looks for itself in /proc, which contained processes do not have.
        "rustc -O --edition=2021 -C strip=symbols -C link-arg=-fuse-ld=bfd -o program {file}",
        "rustc --version",
    ),
}
"""Every known language by the name that a problem uses."""


def programs_of(*commands: Sequence[str]) -> tuple[str, ...]:
    """Return the programs that commands need: what they begin with, or ``env`` starts, unless it is built."""
    words = [next((word for word in command if word != "env" and "=" not in word), "") for command in commands]
    return tuple(dict.fromkeys(word for word in words if word and (word.startswith("/") or "/" not in word)))


LANGUAGE_PROGRAMS: Final = frozenset(tool for known in KNOWN.values() for tool in programs_of(known.build, known.run))
"""Programs of all known languages."""


def known_language(name: str) -> KnownLanguage | None:
    """Return a language by its key, its name or a label of its fences, in any case."""
    label = name.lower()
    return next((each for key, each in KNOWN.items() if label in (key, each.name.lower(), *each.labels)), None)
