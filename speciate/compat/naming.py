"""Names, languages and packages of imported problems, and notes about them that apply to every system."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from speciate.compat.folder import RESERVED, optional_text, path_within, read_plain, refused
from speciate.domain.errors import NotFoundError
from speciate.domain.known_languages import KNOWN
from speciate.domain.values import MAX_SLUG, REQUIREMENT, slug_of
from speciate.problems.loader import known_problems
from speciate.problems.lockfile import UnreadableError, requirement_lines
from speciate.prompts.evolve_blocks import blocks_or_none, outside_of
from speciate.prompts.python_source import parse_python
from speciate.prompts.text import bounded

_SUFFIXES: Final = """
.asm=Assembly .bas=BASIC .bat=Batch .c++=C++ .cc=C++ .clj=Clojure .cob=COBOL .cs=C# .css=CSS .cu=CUDA .cxx=C++ .d=D
.erl=Erlang .ex=Elixir .f=Fortran .f95=Fortran .for=Fortran .h=C .hpp=C++ .hs=Haskell .html=HTML .java=Java .json=JSON
.kt=Kotlin .lisp=Lisp .lua=Lua .m=MATLAB .md=Markdown .ml=OCaml .nim=Nim .pas=Pascal .php=PHP .pl=Perl .rb=Ruby
.s=Assembly .scala=Scala .scm=Scheme .sh=Shell .sql=SQL .sv=SystemVerilog .svg=SVG .swift=Swift .tex=TeX .toml=TOML
.ts=TypeScript .v=Verilog .vhd=VHDL .vim=Vim .wl=Wolfram .xml=XML .yaml=YAML .zig=Zig
"""
LANGUAGES: Final[dict[str, str]] = {
    **{Path(known.file).suffix.lower(): known.name for known in KNOWN.values()},
    ".txt": "Text",  # such as a project of several files and languages, joined into one
    **dict(pair.split("=") for pair in _SUFFIXES.split()),
}
"""Languages of initial programs that their evaluators build and run themselves, by suffix."""

_REQUIREMENTS: Final = "requirements.txt"
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_PROVIDED: Final = frozenset({"openevolve", "shinka", "shinka-evolve", "skydiscover"})
"""Packages whose parts that evaluators use come with the importers."""
_NAMED_ALIKE: Final = "cvxpy jax matplotlib networkx numba numpy optax ortools pandas scipy shapely sympy torch tqdm"
_PACKAGES: Final = {name: name for name in _NAMED_ALIKE.split()} | {"sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages of well-known modules. Any other module is never guessed: a package of its name may be another's."""
_STARTERS: Final = re.compile(r"\b(subprocess|multiprocessing|ProcessPoolExecutor|os\.system|os\.fork)\b")
UNPROMPTED: Final = "models get no description of the task: write it as a docstring at the top of the evaluator"
_ENTRIES: Final = ("evaluate", "evaluate_stage1")
_MOST_DOCUMENTATION: Final = 4000
_ARGUMENTS: Final = re.compile(r"(?m)^(?:Args|Arguments|Parameters):\n(?:[ \t]+.*\n|\n)*")
"""Of no use to models, which write the program and do not call the evaluator."""
_COMMENT: Final = re.compile(r"(?s)(?:#!.*?\n)?\s*((?:[ \t]*(?:#|//|--|;|%)[^\n]*\n)+|/\*.*?\*/)")
_COMMENT_MARK: Final = re.compile(r"(?m)^[ \t]*[#/*;%-]+[ \t]?|\*/$")


def find_program(
    folder: Path, stems: Iterable[str], suffix: str | None = None, program: str | None = None
) -> tuple[Path, str]:
    """Return the directory of the initial program and its path there; it lies elsewhere only if the user names it."""
    if program is not None:
        path = Path(os.path.abspath(program))  # noqa: PTH100  # links are refused later, so they are not resolved
        relative = not Path(program).is_absolute() and os.path.lexists(folder / program)
        inside = relative or path.is_relative_to(os.path.abspath(folder)) or not os.path.lexists(path)  # noqa: PTH100
        place, name = (folder, path_within(folder, program, "--program")) if inside else (path.parent, path.name)
        _require_language(place, Path(name))
        return place, name
    names = [f"{stem}{end}" for end in (suffix or ".py", ".py", *LANGUAGES) for stem in stems]
    there = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    if present := next((name for name in names if name in there), None):
        return folder, present
    first = next(iter(stems))
    for name, path in sorted(there.items()):
        if name in stems and path.is_dir():
            detail = f"is a folder: join its files into {name}.txt, as the evaluator expects them, and import again"
            raise refused(folder, detail, name)
        if path.stem in stems:
            _require_language(folder, Path(name))
    raise NotFoundError(
        f"{folder} contains no {first}.py." if there else f"{folder} is not a directory with files.",
        remedy=f"Name a directory with {first}.py and an evaluator, or name the files with --program and --evaluator.",
    )


def _require_language(folder: Path, path: Path) -> None:
    if path.suffix.lower() not in (".py", *LANGUAGES):
        detail = f"is in no known language: expected .py or one of {', '.join(LANGUAGES)}"
        raise refused(folder, detail, path.as_posix())


def with_program(files: Mapping[str, str], place: Path, path: str, *, inside: bool) -> tuple[str, dict[str, str]]:
    """Return the name of the initial program as a file of the problem, and the files with it.

    A problem's program lies beside its definition, so one from a folder or from elsewhere is copied; one with a
    reserved name is renamed.
    """
    if inside and "/" not in path and path not in RESERVED:
        return path, dict(files)
    names = (f"{stem}{Path(path).suffix}" for stem in ("initial_program", "seed_program", "program_to_start_from"))
    name = next(name for name in names if name not in files)
    try:
        text = files[path] if inside else read_plain(place, path)
    except UnreadableError as error:
        raise refused(place, error, path) from None
    return name, {name: text, **{each: content for each, content in files.items() if each not in RESERVED}}


@dataclass(frozen=True)
class Packages:
    named: tuple[str, ...] = ()
    """Those of ``requirements.txt``, and those of well-known modules that the files import."""
    demanded: tuple[str, ...] = ()
    """Those that the user adds; they replace lines of the same package."""
    refused: tuple[str, ...] = ()
    """Lines of ``requirements.txt`` that a problem cannot declare."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """Packages to install, all or none: with none, the problem uses those of the worker."""
        if not self.demanded and all(_installed(_name_of(line)) for line in self.named if _applies(line)):
            return ()
        replaced = {_name_of(line) for line in self.demanded}
        remaining = [line for line in self.named if line in self.demanded or _name_of(line) not in replaced]
        return tuple(dict.fromkeys((*remaining, *self.demanded)))


def packages_in(folder: Path, files: Mapping[str, str] | None = None, listed: str = _REQUIREMENTS) -> Packages:
    lines = requirement_lines(optional_text(folder, listed))
    named = [line for line in lines if re.fullmatch(REQUIREMENT, line) and _PACKAGE.match(line)]
    needed = [line for line in named if _name_of(line) not in _PROVIDED]
    imported = {_PACKAGES[module] for module in _imports(files or {}) if module in _PACKAGES}
    needed += sorted(imported - {_name_of(line) for line in needed})
    return Packages(tuple(needed), refused=tuple(line for line in lines if line not in named))


def named_after(folder: Path, system: str) -> tuple[str, str]:
    """Return the slug and the title of the problem in a directory.

    The slug begins with the system, because problems of one slug are versions of one problem. A directory whose name is
    only a number takes the name above it too.
    """
    resolved = folder.resolve()
    parts = [resolved.name]
    for above in resolved.parents:
        if re.search("[A-Za-z]{2}", parts[0]) or not above.name:
            break
        parts.insert(0, above.name)
    slug = slug_of(f"{system} {' '.join(parts)}", "imported")
    if slug in known_problems():
        slug = f"{slug[: MAX_SLUG - 9]}-imported"
    return slug, slug.replace("-", " ").capitalize()


def described_in(evaluator: str, program: str) -> str:
    """Return the task in an evaluator's docstrings, else at the head of the program outside its blocks.

    Nothing but documentation: the evaluator's code may hold what models must not see.
    """
    tree = parsed(evaluator)
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    texts = [ast.get_docstring(tree), *(ast.get_docstring(each) for each in functions if each.name in _ENTRIES)]
    task = "\n\n".join(_ARGUMENTS.sub("", f"{text}\n").strip() for text in texts if text)
    return bounded(task or _head_of(program), _MOST_DOCUMENTATION)


def _head_of(program: str) -> str:
    """Return the docstring or the comment at the top of a program, if its blocks begin later."""
    blocks = blocks_or_none(program)
    head = outside_of(program, blocks)[0] if blocks else ""
    comment = _COMMENT.match(head)
    return ast.get_docstring(parsed(head)) or (_COMMENT_MARK.sub("", comment[1]).strip() if comment else "")


def remarks_on(
    folder: Path, files: Mapping[str, str], evaluator: str, message: str, listed: str = _REQUIREMENTS
) -> tuple[str, ...]:
    """Return notes about an imported problem that its user should read before the trial."""
    remarks = [] if message.strip() else [UNPROMPTED]
    if lines := packages_in(folder, listed=listed).refused:
        remarks.append(f"{listed} has lines that are no package with versions, left out: {', '.join(lines)}")
    if starter := _STARTERS.search(files[evaluator]):
        remarks.append(f"{evaluator} uses {starter[1]}: only tier A of the sandbox lets evaluators start processes")
    return tuple(remarks)


def _name_of(requirement: str) -> str:
    match = _PACKAGE.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0] if match else requirement).lower()


def _applies(requirement: str) -> bool:
    try:
        marker = Requirement(requirement.partition(" --hash=")[0]).marker
        return marker is None or marker.evaluate()
    except ValueError:
        return True  # pip says what is wrong


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except (PackageNotFoundError, ValueError):
        return False
    return True


def _imports(files: Mapping[str, str]) -> set[str]:
    modules: set[str] = set()
    for name, text in files.items():
        if name.endswith(".py"):
            for node in ast.walk(parsed(text)):
                match node:
                    case ast.Import(names=names):
                        modules |= {alias.name.partition(".")[0] for alias in names}
                    case ast.ImportFrom(module=str(module), level=0):
                        modules.add(module.partition(".")[0])
    own = {name.partition("/")[0].removesuffix(".py") for name in files}
    return modules - own - set(sys.stdlib_module_names)


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a program, or an empty one if it cannot be parsed."""
    tree = parse_python(text)
    return tree if isinstance(tree, ast.Module) else ast.Module([], [])
