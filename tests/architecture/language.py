"""Find words and docstring openings that the glossary replaces, outside quotes. Usage: ``language.py [PATH …]``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = ("whoever", "nobody", "somebody", "obey", "obeys", "anew", "is told", "are told", "mended", "told rightly")
OPENINGS = ("Who", "Whom", "Whose", "Whether", "What", "How", "Where", "When", "Why")
SUFFIXES = {".py", ".md", ".html", ".toml", ".js", ".css", ".yml", ".yaml", ".txt", ".sh", ".mako", ".json"}
SKIPPED = ("docs/evidence/", "tests/architecture/language.py")

_WORD = re.compile(r"(?<![\"'`])\b(" + "|".join(WORDS).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def findings(root: Path, under: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield ``PATH:LINE: what`` for every word and docstring opening."""
    listed = subprocess.run(["git", "ls-files", *under], cwd=root, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        path = root / name
        if path.suffix not in SUFFIXES or name.startswith(SKIPPED) or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for match in _WORD.finditer(text):
            yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        if path.suffix == ".py":
            yield from _openings(name, text)


def _openings(name: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node) or ""
            if doc.split(" ")[0].rstrip(",:") in OPENINGS:
                yield f"{name}:{getattr(node, 'lineno', 1)}: docstring opens with {doc.splitlines()[0]!r}"


if __name__ == "__main__":
    found = list(findings(ROOT, tuple(sys.argv[1:])))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{len(found)} findings\n")
